package locks

import (
	"context"
	"errors"
	"time"
)

// Renew renews the lease now, for its TTL. The lease renews itself; this is for one with [WithoutRenewal], or before
// work that must not be interrupted by a wait for the database. Renewals of one lease do not overlap: this one waits for
// one that is under way, until that has an answer or was given up. A fault leaves the lease as it is.
//
// Errors: [*LostError] when the lease is lost, which also ends its context; [ErrReleased]; [ErrMaxHold]; [ErrPending]
// while a transaction that changes the lease is open; a context's end; or the store's fault.
func (l *Lease) Renew(ctx context.Context) error {
	return l.renew(ctx, l.locker.config.callLimit)
}

// renewal is the store's answer to a renewal that was sent at that instant.
type renewal struct {
	lock Lock
	sent time.Time
}

func (l *Lease) renew(ctx context.Context, limit time.Duration) error {
	began := time.Now()
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-l.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := l.ended(); err != nil {
		return err
	}
	if l.isInTx() {
		return ErrPending
	}
	sent := time.Now()
	answer, err := ask(ctx, l.locker, limit, func(ctx context.Context) (renewal, error) {
		lock, err := l.locker.store.Renew(ctx, l.grant, l.made.lease.ttl)
		return renewal{lock, sent}, err
	}, func(late renewal, err error) {
		_ = l.settle(late, err, began) // whoever asked has been told otherwise
	})
	return l.settle(answer, err, began)
}

// settle does what the store's answer says, and tells the observers.
func (l *Lease) settle(answer renewal, err error, began time.Time) error {
	event := Event{Kind: EventRenewed, Grant: l.grant, Elapsed: time.Since(began), Tries: 1}
	switch {
	case err == nil:
		if err := l.renewed(answer); err != nil {
			return err
		}
	case errors.Is(err, ErrLost):
		if ended := l.ended(); errors.Is(ended, ErrReleased) { // it found the row gone because we freed it
			return ended
		}
		l.lose(lossOf(l.grant, err), true)
		return err
	default:
		l.mu.Lock()
		l.failure = err
		l.mu.Unlock()
		event.Kind, event.Err = EventRenewFailed, err
	}
	l.locker.config.observe(l.ctx, event)
	return err
}

// lossOf returns the loss in err as its own type.
func lossOf(grant Grant, err error) *LostError {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost
	}
	return &LostError{Grant: grant, Reason: err}
}

// ended returns why the lease can no longer be renewed, or nil.
func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endedLocked()
}

func (l *Lease) endedLocked() error {
	switch {
	case l.lost != nil:
		return l.lost
	case l.releasing:
		return ErrReleased
	case l.isOver:
		return ErrMaxHold
	}
	return nil
}

// renewed moves the deadline. A context that has ended stays ended: an answer that came after the deadline is of no use.
func (l *Lease) renewed(r renewal) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lost != nil:
		return l.lost
	case l.releasing:
		return ErrReleased
	}
	if r.sent.Before(l.answered) { // a newer one has its answer already
		return nil
	}
	l.failure, l.retries = nil, l.newRetries()
	l.lock, l.answered = r.lock, r.sent
	l.deadline = deadlineOf(l.made.lease, r.lock, r.sent)
	l.deadlineTimer.Reset(time.Until(l.deadline))
	return nil
}

// renewNow runs when a renewal is due, and sets when the next one is. A renewal that failed is tried again, with growing
// pauses, as long as the deadline has not passed; only the store's word or the deadline ends the lease.
func (l *Lease) renewNow() {
	if l.ended() != nil { // the timer ran off as the lease ended
		return
	}
	l.locker.begin()
	defer l.locker.leave()
	sent := time.Now()
	// Bounded by the interval too, so that one call that hangs leaves time for another.
	limit := min(l.locker.config.callLimit, l.made.lease.interval, time.Until(l.Deadline()))
	err := l.renew(context.WithoutCancel(l.ctx), limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver || errors.Is(err, ErrPending) { // the end of the transaction sets the timer
		return
	}
	if err != nil {
		l.renewTimer.Reset(l.retries.next())
		return
	}
	l.renewTimer.Reset(time.Until(sent.Add(l.made.lease.interval)))
}

// renewalDueLocked is an interval after the last grant or renewal: one that a retry found again may be older than its
// answer.
func (l *Lease) renewalDueLocked() time.Time {
	return l.answered.Add(l.made.lease.interval - max(0, l.made.lease.ttl-l.lock.Remaining))
}

// isInTx reports whether a change of the lease stands in a transaction that has not ended.
func (l *Lease) isInTx() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inTx > 0
}

// newRetries are pauses that are short beside the interval, since what is left of the lease is two or three of those.
func (l *Lease) newRetries() backoff {
	return backoff{bound: max(l.made.lease.interval/16, time.Millisecond), most: max(l.made.lease.interval/4, time.Millisecond)}
}
