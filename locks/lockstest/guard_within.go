package lockstest

import (
	"errors"

	"github.com/rowlease/rowlease/locks"
)

func guardSavepoint(c *check) {
	c.needsTransactions()
	undone, free := c.acquire(c.b, "undone", "worker-1"), c.acquire(c.b, "undone too", "worker-1")
	kept := c.acquire(c.b, "kept", "worker-1")
	outer := c.acquire(c.b, "outer", "worker-1")
	tx := c.begin(c.a)
	c.guard(tx, outer.Grant())
	savepoint := c.savepoint(tx)
	c.guard(savepoint, undone.Grant())
	c.guard(savepoint, free.Grant())
	c.guard(savepoint, outer.Grant()) // the guard that was there before stays
	c.wantExcluded("undone", &undone)
	c.rollback(savepoint)
	c.wantUsable(tx)
	if !c.h.OneWriter {
		c.release(c.b, undone.Grant())
		c.acquire(c.b, "undone", "worker-1")
	}
	savepoint = c.savepoint(tx)
	c.guard(savepoint, kept.Grant())
	c.commit(savepoint)
	for _, lock := range []locks.Lock{kept, outer} {
		c.wantExcluded(lock.Resource, &lock)
		_, err := tx.Acquire(c.Context(), c.request(lock.Resource, "worker-1"))
		c.wantGuarded(err)
		c.wantUsable(tx)
	}
	next := c.acquireTx(tx, "undone too", "worker-1") // which is guarded no longer
	c.commit(tx)
	c.wantStored(next)
	c.wantStored(kept)
	c.wantStored(outer)
}

// wantGuarded says that an acquire in the guarding transaction was refused.
func (c *check) wantGuarded(err error) {
	c.Helper()
	if !errors.Is(err, locks.ErrGuarded) || errors.Is(err, locks.ErrHeld) {
		c.Errorf("Acquire in the guarding transaction: %v, want ErrGuarded", err)
	}
}

func guardAcquire(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.guard(tx, lock.Grant())
	got, err := tx.Acquire(c.Context(), c.request(resource, "worker-1"))
	c.wantGuarded(err)
	c.wantSame("the record beside the error", got, locks.Lock{})
	savepoint := c.savepoint(tx)
	_, err = savepoint.Acquire(c.Context(), c.request(resource, "worker-1"))
	c.wantGuarded(err)
	c.rollback(savepoint)
	c.wantUsable(tx)
	c.wantExcluded(resource, &lock) // the guard stands
	other := c.acquireTx(tx, "invoice:2026-0043", "worker-1")
	c.commit(tx)
	c.wantStored(lock)
	c.wantStored(other)
	tx = c.begin(c.a)
	next := c.acquireTx(tx, resource, "worker-1") // another transaction guards nothing
	c.commit(tx)
	c.wantStored(next)
}

func guardOwn(c *check) {
	tx := c.begin(c.a)
	lock := c.acquireTx(tx, resource, "worker-1")
	c.guard(tx, lock.Grant())
	c.commit(tx)
	c.wantStored(lock)
	tx = c.begin(c.a)
	c.guard(tx, lock.Grant())
	renewed := c.renewTx(tx, lock.Grant(), 2*ttl)
	c.guard(tx, lock.Grant())
	c.wantStored(lock)
	c.commit(tx)
	c.wantStored(renewed)
	tx = c.begin(c.a)
	c.guard(tx, lock.Grant())
	c.releaseTx(tx, lock.Grant())
	c.wantLost(tx.Guard(c.Context(), lock.Grant()), lock.Grant(), locks.ErrNotHeld)
	c.wantUsable(tx)
	c.wantStored(renewed)
	c.commit(tx)
	c.wantFree(resource)
	c.wantRows(0)
}
