package locks

import (
	"context"
	"errors"
)

// Do acquires the resource, waiting as [Locker.Acquire] does, runs fn under the lease, and releases it when fn has
// returned, never before, also when fn panics. The context that fn gets ends with ctx, and when the lease is lost,
// with the [*LostError] as its cause.
//
// Do returns the acquire's error, in which case fn was not run, or fn's. Where the lease was lost before fn returned,
// the error is also [ErrLost], even if fn returned nil: somebody else may have held the resource meanwhile. A lease
// that could only not be freed is no error of the work; observers are told ([EventReleaseFailed]).
func (l *Locker) Do(ctx context.Context, resource string, fn func(ctx context.Context, lease *Lease) error, options ...AcquireOption) error {
	return l.do(ctx, resource, true, fn, options)
}

// TryDo is [Locker.Do] with a single try: when the resource is held it returns [*HeldError] at once, and fn is not run.
func (l *Locker) TryDo(ctx context.Context, resource string, fn func(ctx context.Context, lease *Lease) error, options ...AcquireOption) error {
	return l.do(ctx, resource, false, fn, options)
}

func (l *Locker) do(ctx context.Context, resource string, wait bool, fn func(context.Context, *Lease) error, options []AcquireOption) (err error) {
	if fn == nil {
		return &InvalidError{Field: "function", Reason: "must not be nil"}
	}
	// Counted from here to the end, so that Close waits for work whose lease is lost, too.
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	lease, err := l.acquire(ctx, resource, wait, options)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.ctx, func() { cancel(lease.Err()) })
	defer func() { // deferred, so that a panic of fn frees the resource on its way
		stop()
		cancel(nil)
		lost := lease.loss()
		if released := lease.Release(ctx); lost == nil && errors.Is(released, ErrLost) {
			lost = released
		}
		if lost != nil && !errors.Is(err, ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(work, lease)
}
