package lockstest

import (
	"encoding/json"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func takeoverPromises() []promise {
	return []promise{
		{name: "an ended lease is taken over in place", test: func(c *check) { takeover(c, "worker-2", true) }},
		{name: "an ended lease is taken again by its own owner in place", test: func(c *check) { takeover(c, "worker-1", true) }},
		{name: "the owner's new attempt is a new grant in place", test: func(c *check) { takeover(c, "worker-1", false) }},
		{name: "an ended lease is gone for everybody", test: takeoverGone},
		{name: "an ended lease is taken over once", test: takeoverOnce},
	}
}

// takeover replaces a grant by a newer one of the owner, in the same row, several times.
func takeover(c *check, owner string, expire bool) {
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{"run":0}`)
	first := c.grant(c.a, request)
	previous := first
	for i, metadata := range []json.RawMessage{json.RawMessage(`{"run":1}`), nil, json.RawMessage(`{"run":3}`)} {
		if expire {
			c.expire(resource)
		}
		next := c.request(resource, owner)
		next.TTL = time.Duration(i+1) * time.Minute
		next.Metadata = metadata
		asked := time.Now()
		lock := c.grant(c.stores[1-i%2], next)
		c.wantRemaining("Acquire", lock.Remaining, next.TTL, asked)
		if lock.Token <= previous.Token {
			c.Errorf("token %d after %d, want a larger one", lock.Token, previous.Token)
		}
		if lock.AcquiredAt.Before(previous.AcquiredAt) {
			c.Errorf("acquired at %v after %v", lock.AcquiredAt, previous.AcquiredAt)
		}
		c.wantSame("Acquire", lock, locks.Lock{
			ID: first.ID, Resource: resource, Owner: owner, Token: lock.Token,
			AcquiredAt: lock.AcquiredAt, ExpiresAt: lock.AcquiredAt.Add(next.TTL), Metadata: metadata,
		})
		c.wantStored(lock)
		c.wantRows(1)
		previous = lock
	}
	// The store's clock may be as coarse as milliseconds: go on until it has moved.
	for began, tries := time.Now(), 0; !previous.AcquiredAt.After(first.AcquiredAt); tries++ {
		if time.Since(began) > c.patience && tries > 20 {
			c.Fatalf("a new grant's AcquiredAt is still the first one's: %v", first.AcquiredAt)
		}
		if expire {
			c.expire(resource)
		}
		previous = c.acquire(c.b, resource, owner)
	}
	c.renew(c.a, previous.Grant(), ttl)
}

func takeoverGone(c *check) {
	request := c.request(resource, "worker-1")
	lock := c.grant(c.a, request)
	c.expire(resource)
	c.wantFree(resource)
	_, err := c.a.Renew(c.Context(), lock.Grant(), ttl)
	c.wantLost(err, lock.Grant(), locks.ErrExpired)
	c.wantFree(resource)
	if got := c.acquire(c.b, resource, "worker-2"); got.Owner != "worker-2" {
		c.Errorf("granted to %q, want worker-2", got.Owner)
	}
}

func takeoverOnce(c *check) {
	c.acquire(c.a, resource, "worker-1")
	c.expire(resource)
	holder := c.acquire(c.b, resource, "worker-2")
	_, err := c.a.Acquire(c.Context(), c.request(resource, "worker-3"))
	c.wantHeld(err, holder)
	_, err = c.a.Acquire(c.Context(), c.request(resource, "worker-1"))
	c.wantHeld(err, holder)
	c.wantStored(holder)
}
