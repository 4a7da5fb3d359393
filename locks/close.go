package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Close ends the locker: there are no new acquires, those that wait return [ErrClosed], and the context of every lease
// ends with the cause ErrClosed. Leases stay held, and renewed, while the work under them comes to its end: Close
// waits for functions under [Locker.Do] to return and for all other leases to be released, until ctx ends. A release that
// depends on how a transaction ends is waited for as well, until that is told, for the TTL at most. When ctx ends Close
// releases the rest, whether their work has returned or not, and returns ctx's error, joined with those of the
// releases; one that fails does not stop the others. With a context that never ends, it waits for ever for a lease that
// nobody releases.
//
// When Close has returned nil, no goroutine of the locker runs; after an error, calls that are under way end by their
// own limits. What the locker was given stays open. Close may be called again, at the same time too: every call waits.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
		if l.busy == 0 {
			close(l.idle)
		}
	}
	leases := l.heldLocked()
	l.mu.Unlock()
	for _, lease := range leases {
		lease.cancel(ErrClosed)
	}
	select {
	case <-l.idle: // also under a context that has ended
		return nil
	default:
	}
	select {
	case <-l.idle:
		return nil
	case <-ctx.Done():
		return l.releaseRest(ctx)
	}
}

func (l *Locker) heldLocked() []*Lease {
	leases := make([]*Lease, 0, len(l.leases))
	for lease := range l.leases {
		leases = append(leases, lease)
	}
	return leases
}

// releaseRest releases what is still held, all at once, so that the whole takes no longer than one release.
func (l *Locker) releaseRest(ctx context.Context) error {
	l.mu.Lock()
	leases := l.heldLocked()
	l.mu.Unlock()
	errs := make([]error, len(leases), len(leases)+1)
	var releases sync.WaitGroup
	for i, lease := range leases {
		releases.Go(func() {
			if err := lease.Release(ctx); err != nil {
				errs[i] = err
			}
		})
	}
	releases.Wait()
	return errors.Join(append(errs, fmt.Errorf("locks: closed with %d leases still in use: %w", len(leases), ctx.Err()))...)
}
