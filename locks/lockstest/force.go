package lockstest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func forcePromises() []promise {
	return []promise{
		{name: "the token that was seen ends the lease, which is returned", test: forceSeen},
		{name: "another token ends nothing", test: forceOther},
		{name: "a free or ended resource has nothing to end", test: forceNothing},
		{name: "force releases at once end a lease once", stores: 4, test: forceAtOnce},
	}
}

// forcer returns the store's ability to release by force, or skips the test.
func (c *check) forcer(store locks.Store) locks.ForceReleaser {
	c.Helper()
	forcer, ok := store.(locks.ForceReleaser)
	if !ok {
		c.Skipf("not tested: forced release (%T is no locks.ForceReleaser)", store)
	}
	return forcer
}

// forceRelease must end this lease.
func (c *check) forceRelease(store locks.Store, want locks.Lock) {
	c.Helper()
	got, err := c.forcer(store).ForceRelease(c.Context(), want.Resource, want.Token)
	if err != nil {
		c.Fatalf("ForceRelease(%q, %d): %v", want.Resource, want.Token, err)
	}
	c.wantSame("ForceRelease", got, want)
	if got.Remaining <= 0 {
		c.Errorf("ForceRelease: Remaining = %v, want what was left", got.Remaining)
	}
}

func forceSeen(c *check) {
	c.forcer(c.a)
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{ "host":"a" }`)
	lock := c.grant(c.a, request)
	lock = c.renew(c.a, lock.Grant(), 90*time.Minute)
	c.forceRelease(c.b, lock)
	c.wantFree(resource)
	c.wantRows(0)
	_, err := c.a.Renew(c.Context(), lock.Grant(), ttl)
	c.wantLost(err, lock.Grant(), locks.ErrNotHeld)
	next := c.acquire(c.a, resource, "worker-2")
	if next.ID == lock.ID || next.Token <= lock.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", next.ID, next.Token, lock.ID, lock.Token)
	}
}

func forceOther(c *check) {
	forcer := c.forcer(c.b)
	first := c.acquire(c.a, resource, "worker-1")
	elsewhere := c.acquire(c.a, "invoice:2026-0043", "worker-1")
	c.expire(resource)
	current := c.acquire(c.b, resource, "worker-2")
	for _, token := range []int64{first.Token, elsewhere.Token, current.Token + 1, 1<<53 - 1} {
		got, err := forcer.ForceRelease(c.Context(), resource, token)
		var lost *locks.LostError
		if !errors.Is(err, locks.ErrSuperseded) || !errors.Is(err, locks.ErrLost) || !errors.As(err, &lost) {
			c.Errorf("ForceRelease with token %d, held under %d: %v, want a *LostError: superseded", token, current.Token, err)
		} else if lost.Grant.Resource != resource || lost.Grant.Token != token {
			c.Errorf("LostError.Grant = %+v, want resource %q, token %d", lost.Grant, resource, token)
		}
		c.wantSame("the record beside the error", got, locks.Lock{})
	}
	c.wantStored(current)
	c.wantStored(elsewhere)
	c.renew(c.a, current.Grant(), ttl)
}

func forceNothing(c *check) {
	forcer := c.forcer(c.b)
	want := func(what string, token int64) {
		c.Helper()
		for range 2 {
			if got, err := forcer.ForceRelease(c.Context(), resource, token); !errors.Is(err, locks.ErrNotFound) {
				c.Errorf("ForceRelease %s = %+v, %v, want ErrNotFound", what, got, err)
			}
		}
	}
	want("of a resource nobody ever held", 1)
	lock := c.acquire(c.a, resource, "worker-1")
	c.release(c.a, lock.Grant())
	want("of a released one", lock.Token)
	lock = c.acquire(c.a, resource, "worker-1")
	c.forceRelease(c.a, lock)
	want("of a forced one", lock.Token)
	lock = c.acquire(c.a, resource, "worker-1")
	c.expire(resource)
	want("of an ended one", lock.Token)
	want("of an ended one, with another token", lock.Token+1)
	c.acquire(c.b, resource, "worker-2")
}

func forceAtOnce(c *check) {
	c.forcer(c.a)
	lock := c.acquire(c.a, resource, "worker-1")
	ended := c.wantOneWinner(c.atOnce(8, func(_ int, store locks.Store) (locks.Lock, error) {
		return store.(locks.ForceReleaser).ForceRelease(c.Context(), resource, lock.Token)
	}), locks.ErrNotFound)
	c.wantSame("ForceRelease", ended, lock)
	c.wantFree(resource)
	c.wantRows(0)
}
