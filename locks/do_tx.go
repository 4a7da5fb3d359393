package locks

import (
	"context"
	"crypto/rand"
	"time"
)

// TryDoTx begins a transaction, acquires the resource in it, runs fn, releases the lease in the same transaction, and
// commits. When fn fails or panics all of it is rolled back. While fn runs nobody else is granted the resource, also past
// the end of the lease, and the lease is not renewed: what fn writes through the transaction is committed as the work of
// the only holder, or not at all. The context that fn gets ends with ctx, and with the lease; keep the transaction shorter
// than the TTL.
//
// Errors: those of [Locker.TryAcquireTx], in which case fn was not run; fn's; [*LostError] when the lease ended before fn
// returned, and [ErrMaxHold] when its longest time was over; or that of begin or commit. It does not try again: a fault that is [ErrRetryable] is worth a new call. A fn
// that releases the lease itself need not: by [Lease.Release] it is then freed after the commit, in the background.
func (l *Locker) TryDoTx(
	ctx context.Context, transactor Transactor, resource string,
	fn func(ctx context.Context, tx Tx, lease *Lease) error, options ...AcquireOption,
) error {
	a, err := l.prepareDoTx(transactor, resource, fn, options)
	if err != nil {
		return err
	}
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	_, _, err = l.doTx(ctx, transactor, a, fn)
	return err
}

// DoTx is [Locker.TryDoTx], and waits while the resource is held, as [Locker.Acquire] does, with no transaction open:
// each try is one of its own, and the place in the queue is kept over all of them, unless an acquire fails without an answer.
// Once fn has run there is no other try.
//
// Errors: those of TryDoTx; the end of the context, joined with what the last try before it met.
func (l *Locker) DoTx(
	ctx context.Context, transactor Transactor, resource string,
	fn func(ctx context.Context, tx Tx, lease *Lease) error, options ...AcquireOption,
) error {
	a, err := l.prepareDoTx(transactor, resource, fn, options)
	if err != nil {
		return err
	}
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	var result error // once fn has run
	wait := l.waiting(ctx, &a, time.Now())
	_, err = waitFor(ctx, wait, func() (struct{}, error) {
		asked, ran, err := l.doTx(ctx, transactor, a, fn)
		switch {
		case ran && err != nil: // the ticket came back with the rollback
			wait.part(ctx, false)
		case asked && unanswered(err) && !a.named:
			// What that may have been granted is freed by its attempt, in the background: the next one is another.
			wait.part(ctx, false)
			a.request.Attempt = rand.Text()
		}
		if ran {
			result, err = err, nil
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	return result
}

func (l *Locker) prepareDoTx(
	transactor Transactor, resource string, fn func(context.Context, Tx, *Lease) error, options []AcquireOption,
) (acquisition, error) {
	switch {
	case transactor == nil:
		return acquisition{}, &InvalidError{Field: "transactor", Reason: "must not be nil"}
	case fn == nil:
		return acquisition{}, &InvalidError{Field: "function", Reason: "must not be nil"}
	}
	return l.prepareExclusive(resource, options)
}

// doTx is one try; asked tells whether the store was asked for the lease, and ran whether fn was run.
func (l *Locker) doTx(
	ctx context.Context, transactor Transactor, a acquisition, fn func(context.Context, Tx, *Lease) error,
) (asked, ran bool, err error) {
	var lease *Lease
	defer func() { // also on the way of a panic
		if lease != nil {
			// It has to do something only where the end of the transaction is not known. That the lease ended before the
			// commit took nothing from the work that is committed.
			_ = lease.Release(ctx)
		}
	}()
	err = transactor.InTx(ctx, func(ctx context.Context, tx Tx) error {
		asked = true
		acquired, err := l.tryAcquireTx(ctx, tx, a)
		if err != nil {
			return err
		}
		lease, ran = acquired, true
		work, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(lease.ctx, func() { cancel(lease.Err()) })()
		if err := fn(work, tx, lease); err != nil {
			return err
		}
		if err := lease.loss(); err != nil {
			return err
		}
		if lease.isReleased() { // by fn
			return nil
		}
		return lease.ReleaseTx(ctx, tx)
	})
	return asked, ran, err
}
