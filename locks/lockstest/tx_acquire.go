package lockstest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func txAcquirePromises() []promise {
	return []promise{
		{name: "nobody sees the lease before the commit, and nobody else is granted the resource", test: txAcquireCommit},
		{name: "a rollback takes it away", test: txAcquireRollback},
		{name: "a savepoint's rollback takes away what was acquired in it, and no more", test: txAcquireSavepoint},
		{name: "what was acquired in a released savepoint is the transaction's", test: txAcquireReleased},
		{name: "held leaves the transaction usable, and nothing behind", test: txAcquireHeld},
		{name: "a lost race leaves the transaction usable, and nothing behind", stores: 4, test: txAcquireRace},
		{name: "transactions on different resources do not meet", test: txAcquireApart},
		{name: "a retry finds its pending grant, and a new attempt is a new one", test: txAcquireAgain},
		{name: "a grant found again is kept from others until the transaction ends", test: txAcquireFound},
		{name: "an ended lease is taken over with the commit, and as it was after a rollback", test: txAcquireEnded},
		{name: "the owner's new grant replaces the old one with the commit", test: txAcquireOwn},
		{name: "the lease's time runs from the acquire, not from the transaction's begin", test: txAcquireTime},
		{name: "a lease that ends by time is granted to the transaction that was refused", test: txAcquireLater},
	}
}

func txAcquireCommit(c *check) {
	tx := c.begin(c.a)
	request := c.request(resource, "worker-1")
	request.TTL, request.Metadata = 42*time.Minute, json.RawMessage(`{ "host":"a" }`)
	asked := time.Now()
	lock := c.grantTx(tx, request)
	c.wantRemaining("Acquire", lock.Remaining, request.TTL, asked)
	c.wantSame("Acquire", lock, locks.Lock{
		ID: lock.ID, Resource: resource, Owner: "worker-1", Token: lock.Token,
		AcquiredAt: lock.AcquiredAt, ExpiresAt: lock.AcquiredAt.Add(request.TTL), Metadata: request.Metadata,
	})
	c.wantFree(resource)
	c.wantRows(0)
	if lister, ok := c.b.(locks.Lister); ok {
		if page, err := lister.List(c.Context(), locks.ListQuery{}); err != nil || len(page.Locks) > 0 {
			c.Errorf("List beside the open transaction = %+v, %v, want none", page, err)
		}
	}
	c.wantExcluded(resource, nil)
	_, err := c.b.Acquire(c.Context(), request) // the attempt's own retry knows no more than others
	c.wantRefusedBeside(err, resource, nil)
	if c.h.OneWriter && !errors.Is(err, locks.ErrRetryable) {
		c.Errorf("err = %v beside the engine's one writer, want ErrBusy", err)
	}
	if multi, ok := c.b.(locks.MultiAcquirer); ok && !c.h.OneWriter {
		_, err := multi.AcquireAll(c.Context(), c.requests("worker-2", "free", resource))
		c.wantRefusedBeside(err, resource, nil)
		c.wantFree("free")
	}
	c.commit(tx)
	c.wantStored(lock)
	c.wantRows(1)
	c.wantRemaining("Get", c.get(c.b, resource).Remaining, request.TTL, asked)
	c.wantSame("the retry", c.grant(c.b, request), lock)
	_, err = c.b.Acquire(c.Context(), c.request(resource, "worker-2"))
	c.wantHeld(err, lock)
	c.renew(c.b, lock.Grant(), ttl)
	c.release(c.a, lock.Grant())
	c.wantRows(0)
}

func txAcquireRollback(c *check) {
	tx := c.begin(c.a)
	request := c.request(resource, "worker-1")
	lock := c.grantTx(tx, request)
	c.rollback(tx)
	c.wantFree(resource)
	c.wantRows(0)
	_, err := c.a.Renew(c.Context(), lock.Grant(), ttl)
	c.wantLost(err, lock.Grant(), locks.ErrNotHeld)
	next := c.acquire(c.b, resource, "worker-2")
	c.release(c.b, next.Grant())
	c.wantStored(c.grant(c.b, request)) // its attempt got nothing, and may try again
}

func txAcquireSavepoint(c *check) {
	tx := c.begin(c.a)
	before := c.acquireTx(tx, "before", "worker-1")
	savepoint := c.savepoint(tx)
	c.acquireTx(savepoint, "within", "worker-1")
	c.acquireTx(savepoint, "before", "worker-1") // a new grant in place, which is undone too
	c.rollback(savepoint)
	c.wantUsable(tx)
	if !c.h.OneWriter { // its gate is open again at once
		c.release(c.b, c.acquire(c.b, "within", "worker-2").Grant())
	}
	c.wantExcluded("before", nil)
	after := c.acquireTx(tx, "after", "worker-1")
	again := c.acquireTx(tx, "within", "worker-3")
	c.commit(tx)
	c.wantStored(before)
	c.wantStored(after)
	c.wantStored(again)
	c.wantRows(3)
}

func txAcquireReleased(c *check) {
	for _, end := range []struct {
		name string
		end  func(Transaction)
	}{{"rolled back", c.rollback}, {"committed", c.commit}} {
		tx := c.begin(c.a)
		savepoint := c.savepoint(tx)
		lock := c.acquireTx(savepoint, resource, "worker-1")
		c.commit(savepoint)
		c.wantUsable(tx)
		c.wantFree(resource)
		c.wantExcluded(resource, nil)
		end.end(tx)
		if end.name == "committed" {
			c.wantStored(lock)
		} else {
			c.wantFree(resource)
			c.wantRows(0)
		}
	}
}

func txAcquireAgain(c *check) {
	tx := c.begin(c.a)
	request := c.request(resource, "worker-1")
	first := c.grantTx(tx, request)
	c.wantSame("the retry", c.grantTx(tx, request), first)
	_, err := tx.Acquire(c.Context(), c.request(resource, "worker-2")) // the transaction sees what it did
	c.wantHeld(err, first)
	c.wantUsable(tx)
	second := c.acquireTx(tx, resource, "worker-1")
	if second.ID != first.ID || second.Token <= first.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", second.ID, second.Token, first.ID, first.Token)
	}
	c.commit(tx)
	c.wantStored(second)
	c.wantRows(1)
}

func txAcquireFound(c *check) {
	c.needsManyWriters() // the back door writes beside the transaction
	request := c.request(resource, "worker-1")
	first := c.grant(c.b, request)
	tx := c.begin(c.a)
	c.wantSame("the retry", c.grantTx(tx, request), first)
	c.expire(resource)
	c.wantExcluded(resource, nil)
	c.commit(tx)
	c.acquire(c.b, resource, "worker-2")
}

func txAcquireEnded(c *check) {
	c.needsTransactions()
	first := c.acquire(c.b, resource, "worker-1")
	c.expire(resource)
	for _, end := range []string{"rollback", "savepoint", "commit"} {
		tx := c.begin(c.a)
		inner := tx
		if end == "savepoint" {
			inner = c.savepoint(tx)
		}
		taken := c.acquireTx(inner, resource, "worker-2")
		if taken.ID != first.ID || taken.Token <= first.Token {
			c.Errorf("taken over with id %d, token %d from id %d, token %d", taken.ID, taken.Token, first.ID, first.Token)
		}
		c.wantFree(resource)
		c.wantExcluded(resource, nil)
		if end != "commit" {
			c.rollback(inner)
			if end == "savepoint" {
				c.commit(tx)
			}
			c.wantFree(resource)
			c.wantRows(1)
			_, err := c.b.Renew(c.Context(), first.Grant(), ttl)
			c.wantLost(err, first.Grant(), locks.ErrExpired)
			continue
		}
		c.commit(tx)
		c.wantStored(taken)
		c.wantRows(1)
	}
}

func txAcquireOwn(c *check) {
	c.needsTransactions()
	old := c.acquire(c.b, resource, "worker-1")
	for _, end := range []string{"rollback", "commit"} {
		tx := c.begin(c.a)
		lock := c.acquireTx(tx, resource, "worker-1")
		if lock.ID != old.ID || lock.Token <= old.Token {
			c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", lock.ID, lock.Token, old.ID, old.Token)
		}
		c.wantStored(old)
		c.wantExcluded(resource, &old)
		if end == "rollback" {
			c.rollback(tx)
			c.wantStored(old)
			old = c.renew(c.b, old.Grant(), ttl)
			continue
		}
		c.commit(tx)
		c.wantStored(lock)
		_, err := c.b.Renew(c.Context(), old.Grant(), ttl)
		c.wantLost(err, old.Grant(), locks.ErrSuperseded)
	}
}

func txAcquireTime(c *check) {
	tx := c.begin(c.a)
	first := c.acquireTx(tx, resource, "worker-1")
	next := first
	// The store's clock may be as coarse as milliseconds: go on until it has moved.
	for began := time.Now(); !next.AcquiredAt.After(first.AcquiredAt); {
		if time.Since(began) > c.patience {
			c.Fatalf("a new grant's AcquiredAt in the transaction is still the first one's: %v", first.AcquiredAt)
		}
		next = c.acquireTx(tx, resource, "worker-1")
	}
	if end := next.AcquiredAt.Add(ttl); !next.ExpiresAt.Equal(end) {
		c.Errorf("ExpiresAt = %v, want AcquiredAt plus the TTL: %v", next.ExpiresAt, end)
	}
	c.commit(tx)
	c.wantStored(next)
}
