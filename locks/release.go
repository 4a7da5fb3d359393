package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// Release ends the lease's context and frees the resource. The result of the first call is that of every later one;
// later calls wait for it. It gives the context's values to the store, not its end: a caller that was cancelled is
// just the one whose lease must be freed. It is bounded by [WithReleaseLimit] instead, within which faults are tried
// again.
//
// Errors: [*LostError] when the lease was lost before, so that the work under it may not have been alone;
// [ErrGuarded]; or the store's fault: the row may then stay until its TTL ends.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		<-l.released
		return l.result
	}
	l.releasing = true
	lost, told := l.lost, l.told
	l.endRenewalLocked()
	l.stopTimersLocked()
	l.mu.Unlock()
	l.cancel(ErrReleased)
	defer l.locker.forget(l)
	defer close(l.released)

	began := time.Now()
	event := Event{Kind: EventReleased, Grant: l.grant}
	if told { // there is nothing left to free
		l.result = lost
		return lost
	}
	event.Tries, l.result = l.release(ctx)
	event.Elapsed = time.Since(began)
	if l.result != nil {
		event.Kind, event.Err = EventReleaseFailed, l.result
	}
	l.locker.config.observe(l.ctx, event)
	return l.result
}

func (l *Lease) release(ctx context.Context) (tries int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.locker.config.releaseLimit)
	defer cancel()
	pauses := backoff{l.locker.config.minBackoff, l.locker.config.maxBackoff}
	for lostAnswer := false; ; {
		tries++
		_, err = call.Do(ctx, l.locker.config.callLimit, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, l.locker.store.Release(ctx, l.grant)
		}, nil)
		switch {
		case err == nil:
			return tries, nil
		case errors.Is(err, ErrNotHeld) && lostAnswer: // an earlier try freed it
			return tries, nil
		case isAnswer(err) && !errors.Is(err, ErrRetryable):
			return tries, err
		}
		lostAnswer = lostAnswer || !isAnswer(err)
		timer := time.NewTimer(pauses.next())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return tries, fmt.Errorf("locks: resource %q not released, it ends by its TTL: %w", l.grant.Resource, err)
		}
	}
}
