package lockstest

import "github.com/rowlease/rowlease/locks"

func txReleasePromises() []promise {
	return []promise{
		{name: "the resource is free with the commit", test: txReleaseCommit},
		{name: "a rollback leaves the lease as it was, that of a savepoint too", test: txReleaseRollback},
		{name: "the transaction that released it may acquire it for somebody else", test: txReleaseAcquire},
		{name: "a grant that is not current is refused, and nothing is left behind", test: refusesGone(txReleaseCall)},
	}
}

func txReleaseCall(c *check, tx Transaction, grant locks.Grant) error {
	return tx.Release(c.Context(), grant)
}

func txReleaseCommit(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.releaseTx(tx, lock.Grant())
	c.wantLost(tx.Release(c.Context(), lock.Grant()), lock.Grant(), locks.ErrNotHeld)
	c.wantUsable(tx)
	c.wantStored(lock)
	c.wantRows(1)
	c.wantExcluded(resource, &lock)
	c.commit(tx)
	c.wantFree(resource)
	c.wantRows(0)
	next := c.acquire(c.b, resource, "worker-2")
	if next.ID == lock.ID || next.Token <= lock.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", next.ID, next.Token, lock.ID, lock.Token)
	}
}

func txReleaseRollback(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.releaseTx(tx, lock.Grant())
	c.rollback(tx)
	c.wantStored(lock)
	tx = c.begin(c.a)
	savepoint := c.savepoint(tx)
	c.releaseTx(savepoint, lock.Grant())
	c.rollback(savepoint)
	c.wantUsable(tx)
	if !c.h.OneWriter { // the row is free again at once
		lock = c.renew(c.b, lock.Grant(), ttl)
	}
	c.guard(tx, lock.Grant())
	c.commit(tx)
	c.wantStored(lock)
	c.wantRows(1)
	c.release(c.b, lock.Grant())
	c.wantRows(0)
}

func txReleaseAcquire(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.releaseTx(tx, lock.Grant())
	next := c.acquireTx(tx, resource, "worker-2")
	if next.ID == lock.ID || next.Token <= lock.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", next.ID, next.Token, lock.ID, lock.Token)
	}
	c.wantStored(lock)
	c.wantExcluded(resource, &lock)
	c.commit(tx)
	c.wantStored(next)
	c.wantRows(1)
	_, err := c.b.Renew(c.Context(), lock.Grant(), ttl)
	c.wantLost(err, lock.Grant(), locks.ErrNotOwner)
}
