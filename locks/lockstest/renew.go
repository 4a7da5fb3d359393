package lockstest

import (
	"encoding/json"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func renewPromises() []promise {
	return []promise{
		{name: "renew moves the end to now plus the TTL, and nothing else", test: renewMoves},
		{name: "renew counts from now, not from the old end", test: renewFromNow},
		{name: "renew by any token renews the owner's current grant", test: renewAny},
	}
}

func renewMoves(c *check) {
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{"host":"a"}`)
	began := time.Now()
	lock := c.grant(c.a, request)
	for i, ttl := range []time.Duration{2 * time.Hour, 10 * time.Minute, locks.MaxTTL, 90500 * time.Millisecond, time.Hour} {
		asked := time.Now()
		renewed := c.renew(c.stores[1-i%2], lock.Grant(), ttl)
		c.wantRemaining("Renew", renewed.Remaining, ttl, asked)
		want := lock
		want.ExpiresAt = renewed.ExpiresAt
		c.wantSame("Renew", renewed, want)
		const slack = 5 * time.Millisecond
		if end := renewed.ExpiresAt.Sub(lock.AcquiredAt); end < ttl-slack || end > ttl+time.Since(began)+slack {
			c.Errorf("a renewal by %v ends %v after AcquiredAt", ttl, end)
		}
		c.wantStored(renewed)
		c.wantRemaining("Get", c.get(c.a, resource).Remaining, ttl, asked)
	}
	c.wantRows(1)
}

func renewFromNow(c *check) {
	lock := c.acquire(c.a, resource, "worker-1")
	for range 5 {
		asked := time.Now()
		renewed := c.renew(c.b, lock.Grant(), ttl)
		c.wantRemaining("Renew", renewed.Remaining, ttl, asked)
		c.wantRemaining("Get", c.get(c.b, resource).Remaining, ttl, asked)
	}
	c.wantRows(1)
}

func renewAny(c *check) {
	c.acquire(c.a, resource, "worker-1")
	lock := c.acquire(c.b, resource, "worker-1")
	anyGrant := locks.Grant{Resource: resource, Owner: "worker-1", Token: locks.AnyToken}
	asked := time.Now()
	renewed := c.renew(c.a, anyGrant, 2*ttl)
	c.wantRemaining("Renew", renewed.Remaining, 2*ttl, asked)
	want := lock
	want.ExpiresAt = renewed.ExpiresAt
	c.wantSame("Renew", renewed, want)
	c.wantStored(want)
}
