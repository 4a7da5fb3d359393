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
	_, err := l.changeTx(ctx, tx, func(ctx context.Context) (Lock, error) { return Lock{}, tx.Guard(ctx, l.grant) })
	return err
}

// RenewTx renews the lease as a part of the caller's transaction. Its deadline moves when the transaction's owner says
// that it committed, and not before; until it ends the lease is not renewed by itself.
//
// Errors: as [Lease.GuardTx].
func (l *Lease) RenewTx(ctx context.Context, tx Tx) error {
	began := time.Now()
	if err := l.beginChange(ctx, false); err != nil {
		return err
	}
	sent := time.Now()
	lock, err := l.changeTx(ctx, tx, func(ctx context.Context) (Lock, error) {
		return tx.Renew(ctx, l.grant, l.made.lease.ttl)
	})
	if err != nil {
		l.changeEnded(RolledBack, false)
		return err
	}
	tx.OnEnd(func(outcome Outcome) {
		if outcome == Committed {
			_ = l.settle(renewal{lock, sent}, nil, began) // it fails for a lease that has ended by now, as it should
		}
		l.changeEnded(outcome, false)
	})
	return nil
}

// ReleaseTx releases the lease as a part of the caller's transaction: the resource is free with the commit. The lease's
// context ends when the transaction's owner says that it committed; after a rollback the lease goes on.
//
// Errors: as [Lease.GuardTx], and [ErrGuarded] when another transaction guards the lease.
func (l *Lease) ReleaseTx(ctx context.Context, tx Tx) error {
	if err := l.beginChange(ctx, true); err != nil {
		return err
	}
	began := time.Now()
	_, err := l.changeTx(ctx, tx, func(ctx context.Context) (Lock, error) { return Lock{}, tx.Release(ctx, l.grant) })
	if err != nil {
		l.releaseEnded(ctx, RolledBack, began)
		return err
	}
	tx.OnEnd(func(outcome Outcome) { l.releaseEnded(context.WithoutCancel(ctx), outcome, began) })
	return nil
}

// beginChange counts a change in a transaction that has not ended, and sees to it that no renewal runs beside it: the
// row would be locked for that.
func (l *Lease) beginChange(ctx context.Context, release bool) error {
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
	if release {
		l.leaving++
	}
	return nil
}

// changeTx asks the store for something within a transaction.
func (l *Lease) changeTx(ctx context.Context, tx Tx, change func(context.Context) (Lock, error)) (Lock, error) {
	if tx == nil {
		return Lock{}, &InvalidError{Field: "transaction", Reason: "must not be nil"}
	}
	if err := l.ended(); err != nil {
		return Lock{}, err
	}
	lock, err := askTx(ctx, l.locker, change)
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

// changeEnded takes back what beginChange counted. Once nothing is open any more renewal goes on, and a release that came
// meanwhile is carried out in the background; gone tells that there is nothing left to free.
func (l *Lease) changeEnded(outcome Outcome, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inTx--
	if gone {
		l.releaseLate = false
	}
	if l.inTx > 0 {
		return
	}
	if !l.isOver && l.renewTimer != nil {
		due := l.renewalDueLocked()
		if outcome != Committed {
			due = time.Now() // it may be overdue, and where the outcome is unknown only the store knows
		}
		l.renewTimer.Reset(time.Until(due))
	}
	if l.releaseLate {
		deadline := l.deadline
		l.locker.begin()
		go func() {
			defer l.locker.leave()
			_ = l.free(l.ctx, deadline) // observers are told
		}()
	}
	l.releaseLate = false
}

// releaseEnded runs when a transaction that released the lease has ended.
func (l *Lease) releaseEnded(ctx context.Context, outcome Outcome, began time.Time) {
	l.mu.Lock()
	l.leaving--
	if outcome != Committed || l.lost != nil {
		l.told = l.told || outcome == Committed // there is nothing left to free
		l.mu.Unlock()
		l.changeEnded(outcome, outcome == Committed)
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
	l.changeEnded(outcome, true)
}
