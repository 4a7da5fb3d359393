package locks

import (
	"context"
	"fmt"
	"time"
)

// TryAcquireTx acquires the resource as a part of the caller's transaction, or says at once that it is held. Nobody else
// sees the lease before the commit, a rollback takes it away, that of a savepoint too, and nobody else is granted the
// resource meanwhile.
//
// The lease is pending until the transaction's owner has said how it ended, and is not renewed before: keep the
// transaction shorter than the TTL. After a commit it is a lease like any other, which must be released. After a
// rollback it is lost, with [ErrRolledBack] as the cause. If nobody ever says how the transaction ended, the lease's
// context ends at its local deadline and its row, if it was committed, at the end of the TTL.
//
// There is only a try: who waits for a lease with a transaction open keeps others waiting. Otherwise it is
// [Locker.TryAcquire]; the context bounds the call, and a call that does not come back is waited for.
//
// Errors: those of TryAcquire; [ErrGuarded] when the transaction itself guards the resource; [ErrStaleSnapshot],
// [ErrSerialization] and [ErrBusy], after which only a new transaction helps; [ErrInvalid] for one that is over.
func (l *Locker) TryAcquireTx(ctx context.Context, tx Tx, resource string, options ...AcquireOption) (*Lease, error) {
	if tx == nil {
		return nil, &InvalidError{Field: "transaction", Reason: "must not be nil"}
	}
	a, err := l.prepare(resource, options)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	start := time.Now()
	lease, err := l.tryTx(ctx, tx, a)
	l.observeAcquire(ctx, a.request, lease, start, 1, err)
	return lease, err
}

func (l *Locker) tryTx(ctx context.Context, tx Tx, a acquisition) (*Lease, error) {
	c, sent := new(claim), time.Now()
	free := func(outcome Outcome) { // what was granted to nobody, should it be committed
		if outcome != RolledBack {
			l.abandon(ctx, a, c)
		}
	}
	lock, err := askTx(ctx, l, func(ctx context.Context) (Lock, error) { return tx.Acquire(ctx, a.request) })
	if err != nil {
		if unanswered(err) {
			tx.OnEnd(free)
		}
		return nil, err
	}
	lease := newLease(ctx, l, a, lock, sent)
	lease.claim, lease.pending, lease.inTx = c, true, 1
	if time.Until(lease.deadline) <= 0 {
		tx.OnEnd(free)
		return nil, &LostError{
			Grant: lock.Grant(), Reason: ErrExpired,
			Cause: fmt.Errorf("the store's answer took %v of a TTL of %v", time.Since(sent), a.lease.ttl),
		}
	}
	if !l.keep(lease) {
		tx.OnEnd(free)
		return nil, ErrClosed
	}
	tx.OnEnd(lease.acquireEnded)
	return lease, nil
}

// acquireEnded runs when the transaction that the lease was acquired in has ended.
func (l *Lease) acquireEnded(outcome Outcome) {
	gone := outcome == RolledBack
	if gone {
		lost := &LostError{Grant: l.grant, Reason: ErrNotHeld, Cause: ErrRolledBack}
		l.lose(lost, true)
		l.mu.Lock()
		released := l.releaseLate && l.lost == nil
		l.told = true // also where the deadline had passed before
		l.mu.Unlock()
		if released { // nothing is released after all
			l.locker.config.observe(l.ctx, l.endEvent(lost))
		}
	}
	l.mu.Lock()
	l.pending = false // not before: a Release meanwhile must not ask for what is gone
	l.mu.Unlock()
	l.changeEnded(outcome, gone)
}
