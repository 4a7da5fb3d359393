package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Release ends the lease's context and frees the resource. The result of the first call is that of every later one;
// later calls wait for it. It gives the context's values to the store, not its end: a caller that was cancelled is
// just the one whose lease must be freed. It is bounded by [WithReleaseLimit] instead, within which faults are tried
// again.
//
// Errors: [*LostError] when the lease was lost before, so that the work under it may not have been alone (what is left
// of it is freed all the same); [ErrGuarded], when a transaction guarded it for longer than the release limit; or the
// store's fault: the row may then stay until its TTL ends. [ErrPending] while a transaction that acquired, renewed
// or released the lease is open: it is then freed when that has ended, in the background.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		<-l.released
		return l.result
	}
	l.releasing = true
	lost, told, deadline := l.lost, l.told, l.deadline
	l.releaseLate = l.inTx > 0
	late := l.releaseLate
	l.endRenewalLocked()
	l.stopTimersLocked()
	l.mu.Unlock()
	l.locker.begin()
	defer l.locker.leave()
	l.cancel(ErrReleased)
	defer l.locker.forget(l)
	defer close(l.released)

	switch {
	case told: // there is nothing left to free
	case late:
		l.result = ErrPending
	default:
		l.result = l.free(ctx, deadline)
	}
	if lost != nil {
		l.result = lost
	}
	l.endClaim(ctx)
	return l.result
}

// free asks the store until it answers, and tells the observers.
func (l *Lease) free(ctx context.Context, deadline time.Time) error {
	began := time.Now()
	tries, err := l.release(ctx, deadline)
	event := Event{Kind: EventReleased, Grant: l.grant, Elapsed: time.Since(began), Tries: tries, Err: err}
	if err != nil {
		event.Kind = EventReleaseFailed
	}
	l.locker.config.observe(l.ctx, event)
	return err
}

// endClaim ends what the lease was made of: a request of its attempt may yet be carried out.
func (l *Lease) endClaim(ctx context.Context) {
	if l.claim.isOpen() {
		l.locker.abandon(ctx, l.made, l.claim)
	} else {
		l.claim.end()
	}
}

// release asks the store until it answers. Deadline is until when the lease was trusted.
func (l *Lease) release(ctx context.Context, deadline time.Time) (tries int, err error) {
	ctx = context.WithoutCancel(ctx)
	end := time.Now().Add(l.locker.config.releaseLimit)
	pauses := backoff{l.locker.config.minBackoff, l.locker.config.maxBackoff}
	for lostAnswer := false; ; {
		tries++
		_, err = ask(ctx, l.locker, min(l.locker.config.callLimit, time.Until(end)), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, l.locker.store.Release(ctx, l.grant)
		}, nil)
		switch {
		case err == nil:
			return tries, nil
		case errors.Is(err, ErrLost) && (lostAnswer || tries > 1 && !time.Now().Before(deadline)):
			// Freed by a try whose answer was lost, and perhaps taken by somebody else already; or ended by its TTL while
			// the store could not be asked. Neither is a loss.
			return tries, nil
		case isAnswer(err) && !errors.Is(err, ErrRetryable) && !errors.Is(err, ErrGuarded):
			return tries, err
		}
		lostAnswer = lostAnswer || !isAnswer(err)
		pause := pauses.next()
		if time.Until(end) <= pause {
			return tries, fmt.Errorf("locks: resource %q not released, it ends by its TTL: %w", l.grant.Resource, err)
		}
		time.Sleep(pause)
	}
}
