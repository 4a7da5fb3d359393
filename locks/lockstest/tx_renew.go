package lockstest

import (
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func txRenewPromises() []promise {
	return []promise{
		{name: "the end moves with the commit", test: txRenewCommit},
		{name: "a rollback leaves the end as it was, that of a savepoint too", test: txRenewRollback},
		{name: "a renewal by others is refused as busy until the transaction ends", test: txRenewBusy},
		{name: "a grant that is not current is refused, and nothing is left behind", test: refusesGone(txRenewCall)},
	}
}

func txRenewCall(c *check, tx Transaction, grant locks.Grant) error {
	lock, err := tx.Renew(c.Context(), grant, ttl)
	c.wantSame("the record beside the error", lock, locks.Lock{})
	return err
}

func txRenewCommit(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	for _, ttl := range []time.Duration{2 * time.Hour, 10 * time.Minute} { // to a later and to an earlier end
		tx := c.begin(c.a)
		asked := time.Now()
		renewed := c.renewTx(tx, lock.Grant(), ttl)
		c.wantRemaining("Renew", renewed.Remaining, ttl, asked)
		want := lock
		want.ExpiresAt = renewed.ExpiresAt
		c.wantSame("Renew", renewed, want)
		c.wantStored(lock)
		c.wantExcluded(resource, &lock)
		c.commit(tx)
		c.wantStored(renewed)
		c.wantRemaining("Get", c.get(c.b, resource).Remaining, ttl, asked)
		lock = renewed
	}
	c.wantRows(1)
}

func txRenewRollback(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.renewTx(tx, lock.Grant(), 2*ttl)
	c.rollback(tx)
	c.wantStored(lock)
	tx = c.begin(c.a)
	savepoint := c.savepoint(tx)
	c.renewTx(savepoint, lock.Grant(), 2*ttl)
	c.rollback(savepoint)
	c.wantUsable(tx)
	if !c.h.OneWriter { // the row is free again at once
		lock = c.renew(c.b, lock.Grant(), ttl)
	}
	c.commit(tx)
	c.wantStored(lock)
	c.release(c.b, c.acquire(c.b, resource, "worker-1").Grant())
}

func txRenewBusy(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	renewed := c.renewTx(tx, lock.Grant(), 2*ttl)
	_, err := c.b.Renew(c.Context(), lock.Grant(), ttl)
	if !errors.Is(err, locks.ErrBusy) || !errors.Is(err, locks.ErrRetryable) || errors.Is(err, locks.ErrLost) {
		c.Errorf("a renewal beside the open transaction's: %v, want ErrBusy", err)
	}
	c.commit(tx)
	c.wantStored(renewed)
	c.wantStored(c.renew(c.b, lock.Grant(), ttl))
}
