package locks

import (
	"context"
	"time"
)

// TryAcquireTx acquires the resource as a part of the caller's transaction, or says at once that it is held. Nobody else
// sees the lease before the commit, a rollback takes it away, that of a savepoint too, and nobody else is granted the
// resource meanwhile.
//
// The lease is pending until the transaction's owner has said how it ended, and is not renewed before: keep the
// transaction shorter than the TTL. After a commit it is a lease like any other, which must be released. After a
// rollback it is lost, with [ErrRolledBack] as the cause, also where the attempt of [WithAttempt] had found what an
// earlier transaction committed: Release frees that. If nobody ever says how the transaction ended, the lease's
// context ends at its local deadline and its row, if it was committed, at the end of the TTL. [Locker.Close] waits for that
// word, no longer than the TTL, where a release depends on it.
//
// There is only a try: who waits for a lease with a transaction open keeps others waiting. Otherwise it is
// [Locker.TryAcquire]; the context bounds the call, and a call that does not come back is waited for.
//
// Errors: those of TryAcquire; [ErrGuarded] when the transaction itself guards the resource; [ErrStaleSnapshot],
// [ErrSerialization] and [ErrBusy], after which only a new transaction helps; [ErrInvalid] for one that is over.
func (l *Locker) TryAcquireTx(ctx context.Context, tx Tx, resource string, options ...AcquireOption) (*Lease, error) {
	if err := validTx(tx); err != nil {
		return nil, err
	}
	a, err := l.prepareExclusive(resource, options)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return l.tryAcquireTx(ctx, tx, a)
}

func (l *Locker) tryAcquireTx(ctx context.Context, tx Tx, a acquisition) (*Lease, error) {
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
	nobodys := true // also on the way of a panic, of a query hook
	defer func() {
		if nobodys {
			l.freeAtEnd(ctx, tx, a, c)
		}
	}()
	lock, err := askTx(ctx, l, func(ctx context.Context) (Lock, error) { return tx.Acquire(ctx, a.request) })
	if err != nil {
		nobodys = unanswered(err)
		return nil, err
	}
	lease := newLease(ctx, l, a, lock, sent)
	lease.claim, lease.pending, lease.inTx = c, true, 1
	if err := lease.overdue(); err != nil {
		return nil, err
	}
	if !l.keep(lease) {
		return nil, ErrClosed
	}
	nobodys = false
	tx.OnEnd(lease.acquireEnded)
	return lease, nil
}

// freeAtEnd frees what was granted to nobody, once the transaction has ended and may have committed it. The locker is busy
// until then: what is committed after the TTL has ended by that.
func (l *Locker) freeAtEnd(ctx context.Context, tx Tx, a acquisition, c *claim) {
	if a.named {
		return
	}
	l.begin()
	waiting := time.AfterFunc(a.lease.ttl, l.left)
	tx.OnEnd(func(outcome Outcome) {
		if !waiting.Stop() {
			return
		}
		defer l.leave()
		if outcome != RolledBack {
			l.abandon(ctx, a, c)
		}
	})
}

// acquireEnded runs when the transaction that the lease was acquired in has ended.
func (l *Lease) acquireEnded(outcome Outcome) {
	lost := &LostError{Grant: l.grant, Reason: ErrNotHeld, Cause: ErrRolledBack}
	undone := outcome == RolledBack
	gone := undone && !l.made.named // a named attempt may have found what was committed before: that is there still
	if undone {
		l.lose(lost, gone)
	}
	l.mu.Lock()
	l.undone = undone
	l.told = l.told || gone // also where the deadline had passed before
	l.pending = false       // not before: a Release meanwhile must not ask for what is gone
	released := l.isLate && l.lost == nil
	// The commit may yet be carried out, after the lease is lost or released.
	late := outcome == Unknown && l.leaving == 0
	l.mu.Unlock()
	if late {
		l.claim.open()
	}
	if undone && released { // nothing is released after all
		l.locker.config.observe(l.ctx, l.endEvent(lost))
	}
	l.changeEnded(outcome, gone)
}
