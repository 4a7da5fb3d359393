package lockstest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func allPromises() []promise {
	return []promise{
		{name: "all are granted, each as it was asked for, in the order of the requests", test: allGranted},
		{name: "one that is held refuses all, and nothing changes", test: allRefused},
		{name: "ended leases and the owner's own are taken over in place", test: allTakeover},
		{name: "a retry finds its grants unchanged", test: allRetry},
		{name: "from 1 to 100 different resources are accepted", test: allLimits},
		{name: "of two at once that overlap one gets all, and nobody sees a part", stores: 4, test: allAtOnce},
	}
}

// multi returns the store's ability to acquire many at once, or skips the test.
func (c *check) multi(store locks.Store) locks.MultiAcquirer {
	c.Helper()
	multi, ok := store.(locks.MultiAcquirer)
	if !ok {
		c.Skipf("not tested: an acquire of several resources (%T is no locks.MultiAcquirer)", store)
	}
	return multi
}

// requests are one of the owner for each resource, each with an attempt of its own.
func (c *check) requests(owner string, resources ...string) []locks.Request {
	requests := make([]locks.Request, len(resources))
	for i, name := range resources {
		requests[i] = c.request(name, owner)
	}
	return requests
}

// acquireAll must be granted all.
func (c *check) acquireAll(store locks.Store, requests []locks.Request) []locks.Lock {
	c.Helper()
	granted, err := c.multi(store).AcquireAll(c.Context(), requests)
	if err != nil || len(granted) != len(requests) {
		c.Fatalf("AcquireAll of %d: %d locks, %v", len(requests), len(granted), err)
	}
	return granted
}

func allGranted(c *check) {
	c.multi(c.a)
	requests := c.requests("worker-1", "m", "a", "z", "B", "é", "a a")
	for i := range requests { // nothing is common to them but the call
		requests[i].TTL = time.Duration(i+1) * 10 * time.Minute
		if i%2 == 0 {
			requests[i].Metadata = json.RawMessage(fmt.Sprintf(`{"line":%d}`, i))
		}
	}
	requests[4].Owner = "worker-2"
	asked := time.Now()
	granted := c.acquireAll(c.a, requests)
	tokens, ids := map[int64]bool{}, map[int64]bool{}
	for i, lock := range granted {
		q := requests[i]
		c.wantSame("AcquireAll", lock, locks.Lock{
			ID: lock.ID, Resource: q.Resource, Owner: q.Owner, Token: lock.Token,
			AcquiredAt: lock.AcquiredAt, ExpiresAt: lock.AcquiredAt.Add(q.TTL), Metadata: q.Metadata,
		})
		c.wantRemaining("AcquireAll", lock.Remaining, q.TTL, asked)
		if tokens[lock.Token] || ids[lock.ID] {
			c.Errorf("id %d or token %d was granted twice", lock.ID, lock.Token)
		}
		tokens[lock.Token], ids[lock.ID] = true, true
		c.wantStored(lock)
	}
	c.wantRows(len(requests))
	for i, lock := range granted { // each is a lease like any other
		c.renew(c.stores[i%2], lock.Grant(), ttl)
		if next := c.acquire(c.b, lock.Resource, lock.Owner); next.Token <= lock.Token {
			c.Errorf("token %d after %d, want a larger one", next.Token, lock.Token)
		}
	}
}

func allRefused(c *check) {
	c.multi(c.a)
	own := c.acquire(c.a, "own", "worker-1")
	ended := c.acquire(c.b, "ended", "worker-2")
	c.expire("ended")
	holder := c.acquire(c.b, "held", "worker-2")
	for _, names := range [][]string{{"held", "own", "free", "ended"}, {"zz", "free", "own", "held"}, {"ended", "held", "a"}, {"held"}} {
		granted, err := c.multi(c.a).AcquireAll(c.Context(), c.requests("worker-1", names...))
		c.wantHeld(err, holder)
		if len(granted) > 0 {
			c.Errorf("%d locks beside the error", len(granted))
		}
	}
	c.wantStored(own)
	c.wantStored(holder)
	for _, name := range []string{"free", "ended", "zz", "a"} {
		c.wantFree(name)
	}
	c.wantRows(3)
	_, err := c.b.Renew(c.Context(), ended.Grant(), ttl)
	c.wantLost(err, ended.Grant(), locks.ErrExpired)
	c.release(c.b, holder.Grant())
	c.acquireAll(c.a, c.requests("worker-1", "held", "own", "free", "ended"))
	c.wantRows(4)
}

func allTakeover(c *check) {
	c.multi(c.a)
	before := []locks.Lock{c.acquire(c.a, "own", "worker-1"), c.acquire(c.b, "ended", "worker-2"), c.acquire(c.b, "own ended", "worker-1")}
	c.expire("ended")
	c.expire("own ended")
	granted := c.acquireAll(c.b, c.requests("worker-1", "own", "ended", "own ended", "free"))
	for i, old := range before {
		if got := granted[i]; got.ID != old.ID || got.Token <= old.Token || got.Owner != "worker-1" || got.AcquiredAt.Before(old.AcquiredAt) {
			c.Errorf("taken over as %+v\nfrom          %+v", got, old)
		}
	}
	for _, lock := range granted {
		c.wantStored(lock)
	}
	_, err := c.a.Renew(c.Context(), before[0].Grant(), ttl)
	c.wantLost(err, before[0].Grant(), locks.ErrSuperseded)
	c.wantRows(4)
}

func allRetry(c *check) {
	c.multi(c.a)
	requests := c.requests("worker-1", "c", "a", "b")
	granted := c.acquireAll(c.a, requests)
	c.renew(c.b, granted[2].Grant(), 2*ttl)
	granted[2] = c.get(c.b, "b")
	for _, store := range c.stores {
		for i, lock := range c.acquireAll(store, requests) {
			c.wantSame("the retry", lock, granted[i])
		}
	}
	c.wantSame("one of them by itself", c.grant(c.b, requests[1]), granted[1])
	c.release(c.a, granted[0].Grant())
	retried := c.acquireAll(c.b, requests) // what is gone is granted anew, what is there is found
	if retried[0].ID == granted[0].ID || retried[0].Token <= granted[0].Token {
		c.Errorf("id %d, token %d after the release of id %d, token %d", retried[0].ID, retried[0].Token, granted[0].ID, granted[0].Token)
	}
	c.wantSame("the retry", retried[1], granted[1])
	c.wantSame("the retry", retried[2], granted[2])
	for i, lock := range retried {
		c.wantStored(lock)
		if err := c.a.ReleaseAttempt(c.Context(), lock.Resource, lock.Owner, requests[i].Attempt); err != nil {
			c.Errorf("ReleaseAttempt(%q): %v", lock.Resource, err)
		}
	}
	c.wantRows(0)
}

func allLimits(c *check) {
	c.multi(c.a)
	names := make([]string, locks.MaxAcquireAll+1)
	for i := range names {
		names[i] = fmt.Sprintf("line:%d", i)
	}
	for _, bad := range []struct {
		requests []locks.Request
		field    string
	}{
		{nil, "resources"},
		{c.requests("worker-1", names...), "resources"},
		{c.requests("worker-1", "a", "b", "a"), "resources"},
		{c.requests("worker-1", "a", ""), "resource"},
		{append(c.requests("worker-1", "a"), c.requests("", "b")...), "owner"},
		{append(c.requests("worker-1", "a"), locks.Request{Resource: "b", Owner: "worker-1", Attempt: "1", TTL: time.Millisecond}), "ttl"},
	} {
		granted, err := c.multi(c.a).AcquireAll(c.Context(), bad.requests)
		c.wantInvalid(err, bad.field, "AcquireAll of %d", len(bad.requests))
		if len(granted) > 0 {
			c.Errorf("%d locks beside the error", len(granted))
		}
	}
	c.wantRows(0)
	c.acquireAll(c.a, c.requests("worker-1", "one"))
	for i, lock := range c.acquireAll(c.a, c.requests("worker-1", names[:locks.MaxAcquireAll]...)) {
		if lock.Resource != names[i] {
			c.Errorf("lock %d is of %q, want %q", i, lock.Resource, names[i])
		}
	}
	c.wantRows(1 + locks.MaxAcquireAll)
}
