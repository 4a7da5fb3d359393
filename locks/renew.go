package locks

import (
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// Renew renews the lease now, for its TTL. The lease renews itself; this is for one with [WithoutRenewal], or before
// work that must not be interrupted by a wait for the database. Renewals of one lease never overlap: this one waits for
// one that is under way. A fault leaves the lease as it is.
//
// Errors: [*LostError] when the lease is lost, which also ends its context; [ErrReleased]; [ErrMaxHold]; a context's
// end; or the store's fault.
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
	done, err := call.Do(ctx, limit, l.renewOnce, func(late renewal, err error) {
		if err == nil {
			_ = l.renewed(late) // too late for a lease that is over
		}
	})
	err = faultOf(ctx, err)
	event := Event{Kind: EventRenewed, Grant: l.grant, Elapsed: time.Since(began), Tries: 1}
	switch {
	case err == nil:
		if err = l.renewed(done); err != nil {
			return err
		}
	case errors.Is(err, ErrLost):
		l.lose(lossOf(l.grant, err), true)
		return err
	case errors.Is(err, ErrReleased), errors.Is(err, ErrMaxHold):
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

// renewOnce asks the store, when no other renewal of this lease is there.
func (l *Lease) renewOnce(ctx context.Context) (renewal, error) {
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-l.over: // another renewal may hang for longer than the lease
	case <-ctx.Done():
		return renewal{}, ctx.Err()
	}
	if err := l.ended(); err != nil {
		return renewal{}, err
	}
	sent := time.Now()
	lock, err := l.locker.store.Renew(ctx, l.grant, l.config.ttl)
	return renewal{lock, sent}, err
}

// ended returns why the lease can no longer be renewed, or nil.
func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	l.failure = nil
	l.lock = r.lock
	l.deadline = deadlineOf(l.config, r.lock, r.sent)
	l.deadlineTimer.Reset(time.Until(l.deadline))
	return nil
}

// renewNow runs when a renewal is due, and sets when the next one is. A renewal that failed is tried again, with growing
// pauses, as long as the deadline has not passed; only the store's word or the deadline ends the lease.
func (l *Lease) renewNow() {
	l.locker.begin()
	defer l.locker.leave()
	sent := time.Now()
	// Bounded by the interval too, so that one call that hangs leaves time for another.
	limit := min(l.locker.config.callLimit, l.config.interval, time.Until(l.Deadline()))
	err := l.renew(context.WithoutCancel(l.ctx), limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOver {
		return
	}
	if err != nil {
		l.renewTimer.Reset(l.retries.next())
		return
	}
	l.retries = l.newRetries()
	l.renewTimer.Reset(time.Until(sent.Add(l.config.interval)))
}

// newRetries are pauses that are short beside the interval, since what is left of the lease is two or three of those.
func (l *Lease) newRetries() backoff {
	return backoff{bound: max(l.config.interval/16, time.Millisecond), most: max(l.config.interval/4, time.Millisecond)}
}
