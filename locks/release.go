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
// or released the lease is open: it is then freed when that has ended, in the background; where nobody tells that within
// the TTL, it has ended by that.
func (l *Lease) Release(ctx context.Context) error {
	if l.beginRelease() {
		l.endRelease(ctx, l.locker.releaseEnd(), nil)
	}
	<-l.released
	return l.result
}

// releaseEnd is until when a release that begins now is tried.
func (l *Locker) releaseEnd() time.Time { return time.Now().Add(l.config.releaseLimit) }

// beginRelease ends the lease's context and renewal, and reports whether it was the first to: endRelease must follow then.
func (l *Lease) beginRelease() bool {
	l.locker.begin() // until endRelease. Not under l.mu: keepAll takes the two the other way round
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		l.locker.leave()
		return false
	}
	l.releasing, l.releaseBegan = true, time.Now()
	if l.inTx > 0 && !l.told {
		// The locker stays busy for it: what is committed later than this has ended by its TTL.
		l.isLate, l.late = true, time.AfterFunc(l.made.lease.ttl, l.giveUpLate)
	}
	l.endRenewalLocked()
	l.stopTimersLocked()
	l.mu.Unlock()
	l.cancel(ErrReleased)
	return true
}

// giveUpLate runs when nobody has told how the transaction ended that a release waits for.
func (l *Lease) giveUpLate() {
	defer l.locker.leave()
	l.locker.config.observe(l.ctx, Event{
		Kind: EventReleaseFailed, Grant: l.grant, Elapsed: l.made.lease.ttl, Err: ErrPending,
	})
	l.endClaim(l.ctx)
}

// endRelease frees the resource, until end, and where turns is not nil with no more calls to the store at once than it
// has room for.
func (l *Lease) endRelease(ctx context.Context, end time.Time, turns chan struct{}) {
	defer l.locker.forget(l)
	defer close(l.released)
	l.mu.Lock()
	lost, told, late := l.lost, l.told, l.isLate
	l.mu.Unlock()
	if late {
		l.result = ErrPending
	} else {
		defer l.locker.leave()
		if !told { // otherwise there is nothing left to free
			l.result = l.free(ctx, end, turns)
		}
		l.endClaim(ctx)
	}
	if lost != nil {
		l.result = lost
	}
}

// free asks the store until it answers, and tells the observers.
func (l *Lease) free(ctx context.Context, end time.Time, turns chan struct{}) error {
	began := time.Now()
	tries, err := l.release(context.WithoutCancel(ctx), end, turns)
	event := Event{Kind: EventReleased, Grant: l.grant, Elapsed: time.Since(began), Tries: tries, Err: err}
	if err != nil {
		event.Kind = EventReleaseFailed
		l.mu.Lock()
		undone := l.undone && errors.Is(err, ErrLost)
		l.mu.Unlock()
		if undone { // the rollback has left nothing to free
			return nil
		}
	}
	l.locker.config.observe(l.ctx, event)
	return err
}

// endClaim ends what the lease was made of: a request of its attempt may yet be carried out.
func (l *Lease) endClaim(ctx context.Context) {
	if l.claim.isOpen() && !l.claim.ended() {
		l.locker.abandon(ctx, l.made, l.claim)
	} else {
		l.claim.end()
	}
}

// release asks the store until it answers.
func (l *Lease) release(ctx context.Context, end time.Time, turns chan struct{}) (tries int, err error) {
	l.mu.Lock()
	began, deadline := l.releaseBegan, l.deadline
	l.mu.Unlock()
	pauses := backoff{l.locker.config.minBackoff, l.locker.config.maxBackoff}
	for lostAnswer := false; ; {
		tries++
		err = l.askRelease(ctx, end, turns)
		switch {
		case err == nil:
			return tries, nil
		case errors.Is(err, ErrLost) && (lostAnswer || began.Before(deadline) && !time.Now().Before(deadline)):
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

// askRelease asks the store once, when it is its turn.
func (l *Lease) askRelease(ctx context.Context, end time.Time, turns chan struct{}) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if turns != nil {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := ask(ctx, l.locker, l.locker.config.callLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.locker.store.Release(ctx, l.grant)
	}, nil)
	return err
}
