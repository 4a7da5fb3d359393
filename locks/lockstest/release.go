package lockstest

import (
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

func releasePromises() []promise {
	return []promise{
		{name: "release frees the resource and leaves no row", test: releaseFrees},
		{name: "a released resource's next grant has a new id and a larger token", test: releaseNext},
		{name: "a second release is told that nothing is held", test: releaseTwice},
		{name: "release by any token frees the owner's current grant", test: releaseAny},
		{name: "resources that come and go leave nothing behind", test: releaseMany},
	}
}

func releaseFrees(c *check) {
	lock := c.acquire(c.a, resource, "worker-1")
	lock = c.renew(c.a, lock.Grant(), 2*ttl)
	c.release(c.b, lock.Grant())
	c.wantFree(resource)
	c.wantRows(0)
}

func releaseNext(c *check) {
	seen := map[int64]bool{}
	var last int64
	for i := range 6 {
		lock := c.acquire(c.stores[i%2], resource, fmt.Sprintf("worker-%d", i/2))
		if seen[lock.ID] || lock.Token <= last {
			c.Errorf("id %d, token %d after ids %v, token %d, want a new id and a larger token", lock.ID, lock.Token, seen, last)
		}
		seen[lock.ID], last = true, lock.Token
		c.release(c.stores[1-i%2], lock.Grant())
	}
}

func releaseTwice(c *check) {
	lock := c.acquire(c.a, resource, "worker-1")
	c.release(c.a, lock.Grant())
	for _, store := range []locks.Store{c.a, c.b} {
		c.wantLost(store.Release(c.Context(), lock.Grant()), lock.Grant(), locks.ErrNotHeld)
	}
	c.wantRows(0)
}

func releaseAny(c *check) {
	c.acquire(c.a, resource, "worker-1")
	c.acquire(c.b, resource, "worker-1")
	c.release(c.a, locks.Grant{Resource: resource, Owner: "worker-1", Token: locks.AnyToken})
	c.wantFree(resource)
	c.wantRows(0)
}

func releaseMany(c *check) {
	for i := range 50 {
		lock := c.acquire(c.stores[i%2], fmt.Sprintf("request:%d", i), "worker-1")
		c.release(c.stores[i%2], lock.Grant())
	}
	c.wantRows(0)
}
