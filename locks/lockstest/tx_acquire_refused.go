package lockstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func txAcquireHeld(c *check) {
	c.needsTransactions()
	holder := c.acquire(c.b, resource, "worker-2")
	tx := c.begin(c.a)
	for range 2 {
		lock, err := tx.Acquire(c.Context(), c.request(resource, "worker-1"))
		c.wantHeld(err, holder)
		c.wantSame("the record beside the error", lock, locks.Lock{})
		c.wantUsable(tx)
	}
	if !c.h.OneWriter { // the refused tries left neither gate nor row lock
		c.renew(c.b, holder.Grant(), ttl)
		c.release(c.b, holder.Grant())
		holder = c.acquire(c.b, resource, "worker-3")
		c.wantRefusedLater(tx, resource)
	}
	other := c.acquireTx(tx, "invoice:2026-0043", "worker-1")
	c.commit(tx)
	c.wantStored(holder)
	c.wantStored(other)
	c.wantRows(2)
}

// wantRefusedLater says that the transaction is not granted what was granted to somebody else since it began. One that has
// a snapshot does not see who that is.
func (c *check) wantRefusedLater(tx Transaction, resource string) {
	c.Helper()
	_, err := tx.Acquire(c.Context(), c.request(resource, "worker-1"))
	if !errors.Is(err, locks.ErrHeld) && !errors.Is(err, locks.ErrStaleSnapshot) {
		c.Errorf("Acquire of what is held since: err = %v, want ErrHeld, or ErrStaleSnapshot", err)
	}
	c.wantUsable(tx)
}

// txAcquireRace lets several transactions try at once: to those who lose nobody's lease is committed yet.
func txAcquireRace(c *check) {
	c.needsManyWriters()
	for round := range 6 {
		name := fmt.Sprintf("invoice:%d", round)
		txs := make([]Transaction, len(c.stores))
		for i, store := range c.stores {
			txs[i] = c.begin(store)
		}
		answers := c.atOnce(len(txs), func(i int, _ locks.Store) (locks.Lock, error) {
			return txs[i].Acquire(c.Context(), locks.Request{Resource: name, Owner: fmt.Sprintf("worker-%d", i), Attempt: "race", TTL: ttl})
		})
		c.wantOneWinner(answers, locks.ErrHeld)
		for i, tx := range txs {
			c.wantUsable(tx)
			if answers[i].err == nil {
				c.rollback(tx)
			}
		}
		holder := c.acquire(c.b, name, "worker-9") // beside the transactions that lost
		for i, tx := range txs {
			if answers[i].err == nil {
				continue
			}
			c.wantRefusedLater(tx, name)
			c.commit(tx)
		}
		c.wantStored(holder)
	}
}

func txAcquireApart(c *check) {
	c.needsManyWriters()
	guarded := c.acquire(c.b, "guarded", "worker-3")
	first, second := c.begin(c.a), c.begin(c.b)
	a, b := c.acquireTx(first, "first", "worker-1"), c.acquireTx(second, "second", "worker-2")
	if a.ID == b.ID || a.Token == b.Token {
		c.Errorf("two transactions were granted ids %d and %d, tokens %d and %d", a.ID, b.ID, a.Token, b.Token)
	}
	c.guard(second, guarded.Grant())
	c.release(c.a, c.acquire(c.a, "third", "worker-1").Grant())
	c.commit(first)
	c.wantStored(a)
	c.wantFree("second")
	c.commit(second)
	c.wantStored(b)
	c.wantStored(guarded)
}

func txAcquireLater(c *check) {
	c.needsTransactions()
	request := c.request(resource, "worker-2")
	request.TTL = locks.MinTTL
	first := c.grant(c.b, request)
	tx := c.begin(c.a)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		lock, err := tx.Acquire(c.Context(), c.request(resource, "worker-1"))
		if err == nil {
			if lock.ID != first.ID || lock.Token <= first.Token || lock.AcquiredAt.Before(first.ExpiresAt) {
				c.Errorf("granted %+v\nafter   %+v", lock, first)
			}
			c.commit(tx)
			c.wantStored(lock)
			return
		}
		if !errors.Is(err, locks.ErrHeld) || time.Since(began) > c.patience {
			c.Fatalf("%v after a lease of %v began: %v", time.Since(began), request.TTL, err)
		}
	}
}
