package locks

import (
	"context"
	"errors"
	"time"
)

// GuardTx checks the lease inside the caller's transaction: it fails unless the lease is current, and from then on nobody
// else can be granted the resource until the transaction ends, even past the lease's own end. What the transaction
// writes after it is written by the holder, also if the process slept before: see [Tx] for what it promises in detail.
// Call it before the transaction's first read where that has a snapshot.
//
// Errors: [*LostError], which ends the lease's context; [ErrStaleSnapshot], [ErrSerialization] and [ErrBusy], each
// [ErrRetryable] with a new transaction; [ErrReleased]; [ErrMaxHold]; [ErrInvalid] for a transaction that is nil, over or
// aborted; a context's end; or the store's fault.
func (l *Lease) GuardTx(ctx context.Context, tx Tx) error {
	if err := validTx(tx); err != nil {
		return err
	}
	if err := l.ended(); err != nil {
		return err
	}
	_, err := l.askTx(ctx, func(ctx context.Context) (Lock, error) { return Lock{}, tx.Guard(ctx, l.grant) })
	return err
}

// RenewTx renews the lease as a part of the caller's transaction. Its deadline moves when the transaction's owner says
// that it committed, and not before; until it ends the lease is not renewed by itself.
//
// Errors: as [Lease.GuardTx].
func (l *Lease) RenewTx(ctx context.Context, tx Tx) error {
	began := time.Now()
	var sent time.Time
	return l.change(ctx, tx, 0, func(ctx context.Context) (Lock, error) {
		sent = time.Now()
		return tx.Renew(ctx, l.grant, l.made.lease.ttl)
	}, func(lock Lock, outcome Outcome) (gone bool) {
		if outcome == Committed {
			_ = l.settle(renewal{lock, sent}, nil, began) // it fails for a lease that has ended by now, as it should
		}
		return false
	})
}

// ReleaseTx releases the lease as a part of the caller's transaction: the resource is free with the commit. The lease's
// context ends when the transaction's owner says that it committed; after a rollback the lease goes on.
//
// Errors: as [Lease.GuardTx], and [ErrGuarded] when another transaction guards the lease.
func (l *Lease) ReleaseTx(ctx context.Context, tx Tx) error {
	began := time.Now()
	return l.change(ctx, tx, 1, func(ctx context.Context) (Lock, error) {
		return Lock{}, tx.Release(ctx, l.grant)
	}, func(_ Lock, outcome Outcome) (gone bool) {
		l.releaseEnded(context.WithoutCancel(ctx), outcome, began)
		return outcome == Committed
	})
}

// isReleased reports whether a release was asked for, by itself or in a transaction.
func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.releasing || l.leaving > 0
}

func validTx(tx Tx) error {
	if tx == nil {
		return &InvalidError{Field: "transaction", Reason: "must not be nil"}
	}
	return nil
}

// change changes the lease within a transaction; leaving is 1 for a release. It is counted until onEnd has run, so that no
// renewal runs beside it: the row would be locked for that. One that fails or panics, in a query hook, is not counted any
// more. OnEnd reports whether there is nothing left to free.
func (l *Lease) change(
	ctx context.Context, tx Tx, leaving int,
	call func(context.Context) (Lock, error), onEnd func(Lock, Outcome) (gone bool),
) error {
	if err := validTx(tx); err != nil {
		return err
	}
	if err := l.beginChange(ctx); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			l.changeEnded(0, false)
		}
	}()
	lock, err := l.askTx(ctx, call)
	if err != nil {
		return err
	}
	done = true
	l.mu.Lock()
	l.leaving += leaving
	l.mu.Unlock()
	tx.OnEnd(func(outcome Outcome) {
		gone := onEnd(lock, outcome)
		l.changeEnded(outcome, gone)
	})
	return nil
}

// beginChange counts a change once no renewal is under way.
func (l *Lease) beginChange(ctx context.Context) error {
	select {
	case l.renewing <- struct{}{}:
		defer func() { <-l.renewing }()
	case <-l.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.endedLocked(); err != nil {
		return err
	}
	l.inTx++
	return nil
}

// askTx asks the store for something within a transaction.
func (l *Lease) askTx(ctx context.Context, call func(context.Context) (Lock, error)) (Lock, error) {
	lock, err := askTx(ctx, l.locker, call)
	if errors.Is(err, ErrLost) {
		l.mu.Lock()
		own := l.pending || l.leaving > 0 // what this handle itself does in a transaction explains it
		l.mu.Unlock()
		if !own {
			// Not the last word: the transaction itself may have removed the row, and be rolled back. So Release still frees it.
			l.lose(lossOf(l.grant, err), false)
		}
	}
	return lock, err
}

// changeEnded ends a change that was counted: by its transaction's outcome, or by 0 where nothing was changed. Once
// nothing is open any more renewal goes on, and a release that came meanwhile is carried out in the background. Gone tells
// that there is nothing left to free.
func (l *Lease) changeEnded(outcome Outcome, gone bool) {
	l.mu.Lock()
	l.inTx--
	last := l.inTx == 0
	if last && !l.isOver && l.renewTimer != nil {
		due := l.renewalDueLocked()
		if outcome == RolledBack || outcome == Unknown {
			due = time.Now() // it may be overdue, and where the outcome is unknown only the store knows
		}
		l.renewTimer.Reset(time.Until(due))
	}
	var late *time.Timer
	if last || gone {
		late, l.late = l.late, nil
	}
	l.mu.Unlock()
	if late == nil || !late.Stop() { // no Release meanwhile, or its time is over
		return
	}
	if gone {
		l.endClaim(l.ctx)
		l.locker.leave()
		return
	}
	go func() { // the locker has been busy with it since the Release
		defer l.locker.leave()
		_ = l.free(l.ctx, l.locker.releaseEnd(), nil) // observers are told
		l.endClaim(l.ctx)
	}()
}

// releaseEnded runs when a transaction that released the lease has ended.
func (l *Lease) releaseEnded(ctx context.Context, outcome Outcome, began time.Time) {
	l.mu.Lock()
	l.leaving--
	if outcome != Committed || l.lost != nil {
		l.told = l.told || outcome == Committed // there is nothing left to free
		l.mu.Unlock()
		return
	}
	first := !l.releasing
	l.releasing = true
	l.endRenewalLocked()
	l.stopTimersLocked()
	l.mu.Unlock()
	l.cancel(ErrReleased)
	l.locker.config.observe(l.ctx, Event{Kind: EventReleased, Grant: l.grant, Elapsed: time.Since(began), Tries: 1})
	if first { // no Release meanwhile, which was told ErrPending
		l.endClaim(ctx)
		close(l.released)
		l.locker.forget(l)
	}
}
