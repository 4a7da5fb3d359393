package lockstest

import (
	"encoding/json"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func refusePromises() []promise {
	return []promise{
		{name: "another owner is told who holds, and for how long", test: refuseFacts},
		{name: "a refused try changes nothing", test: refuseChangesNothing},
		{name: "the holder's facts follow a renewal", test: refuseAfterRenew},
	}
}

func refuseFacts(c *check) {
	request := c.request(resource, "worker-1")
	request.TTL = 42 * time.Minute
	request.Metadata = json.RawMessage(`{"host":"a"}`)
	asked := time.Now()
	holder := c.grant(c.a, request)
	for _, store := range []locks.Store{c.a, c.b} {
		lock, err := store.Acquire(c.Context(), c.request(resource, "worker-2"))
		c.wantRemaining("HeldError", c.wantHeld(err, holder), request.TTL, asked)
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
}

func refuseChangesNothing(c *check) {
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{"host":"a"}`)
	holder := c.grant(c.a, request)
	for i, ttl := range []time.Duration{locks.MinTTL, time.Minute, locks.MaxTTL} {
		other := c.request(resource, "worker-2")
		other.TTL = ttl
		other.Metadata = json.RawMessage(`{"host":"b"}`)
		_, err := c.stores[i%2].Acquire(c.Context(), other)
		c.wantHeld(err, holder)
	}
	c.wantStored(holder)
	c.wantRows(1)
	c.wantSame("the holder's own attempt", c.grant(c.b, request), holder)
	c.renew(c.b, holder.Grant(), ttl)
	c.release(c.b, holder.Grant())
}

func refuseAfterRenew(c *check) {
	holder := c.acquire(c.a, resource, "worker-1")
	for _, renewal := range []time.Duration{3 * ttl, time.Minute} {
		asked := time.Now()
		holder = c.renew(c.b, holder.Grant(), renewal)
		_, err := c.b.Acquire(c.Context(), c.request(resource, "worker-2"))
		c.wantRemaining("HeldError", c.wantHeld(err, holder), renewal, asked)
	}
}
