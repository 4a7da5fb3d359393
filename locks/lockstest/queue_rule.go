package lockstest

import (
	"errors"

	"github.com/rowlease/rowlease/locks"
)

func rulePromises() []promise {
	return []promise{
		{name: "a try from outside does not overtake", test: overtakeTry},
		{name: "nor one for a lease that has ended, by whoever held it", test: overtakeEnded},
		{name: "nor an acquire of several resources, which serves the first one", test: overtakeAll},
		{name: "nor a try in a transaction, which serves the first one with its commit", test: overtakeTx},
		{name: "who barges takes what is free, and nothing that is held", test: overtakeBarge},
		{name: "the holder's own new attempt is not kept out", test: overtakeHolder},
		{name: "a grant found again takes its attempt's ticket along", test: queueFound},
	}
}

func overtakeTry(c *check) {
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	for _, store := range []locks.Store{c.a, c.b} {
		c.wantKeptOut(store, second.request)
		c.wantKeptOut(store, c.request(resource, "worker-3"))
		c.wantKeptOut(store, c.request(resource, "worker-1")) // another attempt than the one that waits
		other := first.request
		other.Owner = "worker-3"
		c.wantKeptOut(store, other)
	}
	c.wantFree(resource)
	c.wantRows(0)
	c.wantQueue(resource, first, second)
	lock := c.grant(c.b, first.request) // the place is the attempt's, not the store's
	c.wantStored(lock)
	c.wantQueue(resource, second)
	c.release(c.a, lock.Grant())
	c.wantKeptOut(c.a, first.request)
	lock = c.serve(second)
	c.release(c.b, lock.Grant())
	c.acquire(c.a, resource, "worker-3") // nobody waits any more
}

func overtakeEnded(c *check) {
	c.queuer(c.a)
	request := c.request(resource, "worker-0")
	ended := c.grant(c.a, request)
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	c.expire(resource)
	for _, store := range []locks.Store{c.a, c.b} {
		c.wantKeptOut(store, c.request(resource, "worker-3"))
		c.wantKeptOut(store, c.request(resource, "worker-0"))
		c.wantKeptOut(store, request)
		c.wantKeptOut(store, second.request)
	}
	c.wantFree(resource)
	lock := c.serve(first)
	if lock.ID != ended.ID || lock.Token <= ended.Token {
		c.Errorf("taken over with id %d, token %d from id %d, token %d", lock.ID, lock.Token, ended.ID, ended.Token)
	}
	c.wantQueue(resource, second)
}

func overtakeAll(c *check) {
	multi := c.multi(c.b)
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	elsewhere := c.wait(c.b, "invoice:2026-0043", "worker-1")
	refused := func(requests ...locks.Request) {
		c.Helper()
		_, err := multi.AcquireAll(c.Context(), requests)
		c.wantAwaited(err, resource)
		c.wantFree("beside it")
		c.wantRows(0)
	}
	refused(c.requests("worker-3", "beside it", resource)...)
	refused(c.request("beside it", "worker-2"), second.request)
	refused(elsewhere.request, second.request)
	c.wantQueue(resource, first, second)
	c.wantQueue(elsewhere.request.Resource, elsewhere)
	granted, err := multi.AcquireAll(c.Context(), []locks.Request{first.request, c.request("beside it", "worker-1"), elsewhere.request})
	if err != nil {
		c.Fatalf("AcquireAll by the first one: %v", err)
	}
	for _, lock := range granted {
		c.wantStored(lock)
	}
	c.wantQueue(resource, second)
	c.wantQueue(elsewhere.request.Resource)
	c.release(c.a, granted[0].Grant())
	barging := c.requests("worker-3", resource, "beside that")
	barging[0].Barge = true
	if granted, err = multi.AcquireAll(c.Context(), barging); err != nil {
		c.Fatalf("AcquireAll by one who barges: %v", err)
	}
	c.wantStored(granted[0])
	c.wantQueue(resource, second)
}

func overtakeTx(c *check) {
	c.needsTransactions()
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	tx := c.begin(c.b)
	beside := c.acquireTx(tx, "beside it", "worker-3")
	for _, request := range []locks.Request{second.request, c.request(resource, "worker-3")} {
		_, err := tx.Acquire(c.Context(), request)
		c.wantAwaited(err, resource)
		c.wantUsable(tx)
	}
	c.commit(tx)
	c.wantStored(beside)

	tx = c.begin(c.b)
	c.grantTx(tx, first.request)
	c.wantQueue(resource, first, second)
	c.rollback(tx)
	c.wantQueue(resource, first, second)
	c.wantFree(resource)

	tx = c.begin(c.b)
	savepoint := c.savepoint(tx)
	c.grantTx(savepoint, first.request)
	c.rollback(savepoint)
	_, err := tx.Acquire(c.Context(), second.request)
	c.wantAwaited(err, resource)
	lock := c.grantTx(tx, first.request)
	c.wantNotYet(second)
	c.commit(tx)
	c.wantStored(lock)
	c.wantQueue(resource, second)

	tx = c.begin(c.a)
	c.releaseTx(tx, lock.Grant())
	_, err = tx.Acquire(c.Context(), c.request(resource, "worker-3"))
	c.wantAwaited(err, resource)
	barging := c.request(resource, "worker-3")
	barging.Barge = true
	lock = c.grantTx(tx, barging)
	c.commit(tx)
	c.wantStored(lock)
	c.wantQueue(resource, second)
}

func overtakeBarge(c *check) {
	c.queuer(c.a)
	barge := func(request locks.Request) locks.Request {
		request.Barge = true
		return request
	}
	holder := c.acquire(c.a, resource, "worker-0")
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	for _, request := range []locks.Request{second.request, c.request(resource, "worker-3")} {
		_, err := c.b.Acquire(c.Context(), barge(request))
		c.wantHeld(err, holder)
	}
	c.release(c.a, holder.Grant())
	lock := c.grant(c.b, barge(c.request(resource, "worker-3")))
	c.wantStored(lock)
	c.wantQueue(resource, first, second)
	c.expire(resource)
	c.wantKeptOut(c.b, second.request)
	second.request.Barge = true
	lock = c.serve(second)
	c.wantStored(lock)
	c.wantQueue(resource, first)
	c.release(c.a, lock.Grant())
	c.wantKeptOut(c.b, c.request(resource, "worker-3"))
	c.serve(first)
}

func overtakeHolder(c *check) {
	c.queuer(c.a)
	lock := c.acquire(c.a, resource, "worker-1")
	first := c.wait(c.b, resource, "worker-2")
	for _, store := range []locks.Store{c.a, c.b} {
		request := c.request(resource, "worker-1")
		next := c.grant(store, request)
		if next.ID != lock.ID || next.Token <= lock.Token {
			c.Errorf("id %d, token %d in place of id %d, token %d", next.ID, next.Token, lock.ID, lock.Token)
		}
		c.wantSame("a retry", c.grant(store, request), next)
		lock = c.renew(store, next.Grant(), ttl)
	}
	if multi, ok := c.b.(locks.MultiAcquirer); ok {
		granted, err := multi.AcquireAll(c.Context(), c.requests("worker-1", "beside it", resource))
		if err != nil {
			c.Fatalf("AcquireAll by the holder: %v", err)
		}
		lock = granted[1]
	}
	c.wantStored(lock)
	c.wantQueue(resource, first)
	if _, err := c.a.Acquire(c.Context(), c.request(resource, "worker-3")); !errors.Is(err, locks.ErrHeld) {
		c.Errorf("a try from outside: %v, want ErrHeld", err)
	}
}

// queueFound is a retry whose first request was granted after it had been refused.
func queueFound(c *check) {
	c.queuer(c.a)
	request := c.request(resource, "worker-1")
	first := c.grant(c.a, request)
	c.foundInQueue(request, first)
	c.release(c.a, first.Grant())
	c.acquire(c.b, resource, "worker-2")
}

// foundInQueue has the attempt wait for what it was granted before, and find it.
func (c *check) foundInQueue(request locks.Request, granted locks.Lock) {
	c.Helper()
	place, err := c.queuer(c.a).Enqueue(c.Context(), request, 0)
	if err != nil {
		c.Fatalf("Enqueue(%+v): %v", request, err)
	}
	c.wantSame("found again", c.grant(c.a, request), granted)
	place.Served()
	c.wantQueue(resource)
}
