package lockstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func grantPromises() []promise {
	return []promise{
		{name: "a free resource is granted, with a full record", test: grantFree},
		{name: "the TTL is kept to the millisecond", test: grantTTL},
		{name: "time alone ends a lease, and not too early", test: grantEnds},
		{name: "metadata is kept byte for byte", test: grantMetadata},
		{name: "records share no memory with the store", test: grantCopies},
		{name: "resources do not touch each other", test: grantIndependent},
	}
}

func grantFree(c *check) {
	c.wantFree(resource)
	c.wantRows(0)
	request := c.request(resource, "worker-1")
	request.TTL = 90 * time.Second
	request.Metadata = json.RawMessage(`{"job":"report"}`)
	asked := time.Now()
	lock := c.grant(c.a, request)
	c.wantRemaining("Acquire", lock.Remaining, request.TTL, asked)

	if lock.ID <= 0 {
		c.Errorf("ID = %d, want a positive number", lock.ID)
	}
	if err := locks.ValidateToken(lock.Token); err != nil {
		c.Error(err)
	}
	if lock.Resource != resource || lock.Owner != "worker-1" {
		c.Errorf("granted %q to %q, want %q to worker-1", lock.Resource, lock.Owner, resource)
	}
	if string(lock.Metadata) != string(request.Metadata) {
		c.Errorf("Metadata = %q, want %q", lock.Metadata, request.Metadata)
	}
	for name, at := range map[string]time.Time{"AcquiredAt": lock.AcquiredAt, "ExpiresAt": lock.ExpiresAt} {
		if at.Location() != time.UTC {
			c.Errorf("%s = %v, want it in UTC", name, at)
		}
		if at != at.Round(0) {
			c.Errorf("%s = %v has a monotonic reading: it is an instant of the store's clock", name, at)
		}
	}
	c.wantStored(lock)
	c.wantRemaining("Get", c.get(c.b, resource).Remaining, request.TTL, asked)
	c.wantRows(1)
}

func grantTTL(c *check) {
	for i, ttl := range []time.Duration{
		locks.MinTTL, 101 * time.Millisecond, 250 * time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond,
		30 * time.Second, time.Hour + time.Millisecond, locks.MaxTTL - time.Millisecond, locks.MaxTTL,
	} {
		request := c.request(fmt.Sprintf("ttl:%d", i), "worker-1")
		request.TTL = ttl
		asked := time.Now()
		lock := c.grant(c.a, request)
		if got := lock.ExpiresAt.Sub(lock.AcquiredAt); got != ttl {
			c.Errorf("TTL %v: ExpiresAt - AcquiredAt = %v", ttl, got)
		}
		c.wantRemaining(fmt.Sprintf("TTL %v: Acquire", ttl), lock.Remaining, ttl, asked)

		lock = c.acquire(c.a, fmt.Sprintf("renewed:%d", i), "worker-1")
		asked = time.Now()
		lock = c.renew(c.b, lock.Grant(), ttl)
		c.wantRemaining(fmt.Sprintf("TTL %v: Renew", ttl), lock.Remaining, ttl, asked)
	}
}

// grantEnds is the one test that lets a TTL pass: the back door could as well set a mark that time never sets.
func grantEnds(c *check) {
	request := c.request(resource, "worker-1")
	request.TTL = locks.MinTTL
	asked := time.Now()
	first := c.grant(c.a, request)
	answered := time.Now()
	for {
		most := locks.MinTTL - time.Since(answered) + 5*time.Millisecond
		second, err := c.b.Acquire(c.Context(), locks.Request{Resource: resource, Owner: "worker-2", Attempt: "takeover", TTL: ttl})
		took := time.Since(asked)
		if err == nil {
			if least := locks.MinTTL - 5*time.Millisecond; took < least {
				c.Errorf("a lease of %v was taken over after %v", locks.MinTTL, took)
			}
			if second.AcquiredAt.Before(first.ExpiresAt) {
				c.Errorf("taken over at %v, before its end at %v", second.AcquiredAt, first.ExpiresAt)
			}
			return
		}
		if left := c.wantHeld(err, first); left > most {
			c.Errorf("HeldError.Remaining = %v, %v after the grant of a lease of %v", left, took, locks.MinTTL)
		}
		if took > c.patience {
			c.Errorf("a lease of %v is still held after %v", locks.MinTTL, took)
		}
		if c.Failed() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// metadataSamples are JSON objects that a store which parses, folds or quotes them would change.
func metadataSamples() []json.RawMessage {
	return []json.RawMessage{
		nil,
		json.RawMessage(`{}`),
		json.RawMessage("\n\t {\"b\" :1,\r\n \"a\": [1.0e2, 1E400, 0.10, -0],\"b\":2}\n "),
		json.RawMessage(`{"k":"\u0000\u00e9\ud83d\ude00\/","é":"é","e` + "\u0301" + `":"😀"}`),
		json.RawMessage(`{"big":123456789012345678901234567890,"sql":"'; DROP TABLE x; -- \"q\" \\ ? ?0 $1 :name %s"}`),
		json.RawMessage(`{"pad":"` + strings.Repeat("x", locks.MaxMetadataBytes-len(`{"pad":""}`)) + `"}`),
	}
}

func grantMetadata(c *check) {
	for i, metadata := range metadataSamples() {
		request := c.request(fmt.Sprintf("metadata:%d", i), "worker-1")
		request.Metadata = metadata
		lock := c.grant(c.a, request)
		want := lock
		want.Metadata = metadata
		c.wantSame("Acquire", lock, want)
		c.wantStored(want)
		_, err := c.b.Acquire(c.Context(), c.request(request.Resource, "worker-2"))
		c.wantHeld(err, want)
		c.wantSame("the same attempt", c.grant(c.b, request), want)
		renewed := c.renew(c.b, lock.Grant(), 2*ttl)
		want.ExpiresAt = renewed.ExpiresAt
		c.wantSame("Renew", renewed, want)
		c.wantStored(want)
	}
}

func grantCopies(c *check) {
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{"job":"report"}`)
	lock := c.grant(c.a, request)
	scribble := func(metadata json.RawMessage) {
		for i := range metadata {
			metadata[i] = 'x'
		}
	}
	want := lock
	want.Metadata = json.RawMessage(`{"job":"report"}`)
	scribble(request.Metadata)
	scribble(lock.Metadata)
	scribble(c.get(c.a, resource).Metadata)
	_, err := c.a.Acquire(c.Context(), c.request(resource, "worker-2"))
	if held := (*locks.HeldError)(nil); errors.As(err, &held) && held.Holder != nil {
		scribble(held.Holder.Metadata)
	}
	c.wantStored(want)
}

func grantIndependent(c *check) {
	first := c.acquire(c.a, "invoice:1", "worker-1")
	second := c.acquire(c.b, "invoice:2", "worker-2")
	third := c.acquire(c.a, "invoice:3", "worker-1")
	if first.ID == second.ID || first.ID == third.ID || second.ID == third.ID {
		c.Errorf("ids %d, %d, %d, want them different", first.ID, second.ID, third.ID)
	}
	for _, grant := range []locks.Grant{
		{Resource: "invoice:2", Owner: first.Owner, Token: first.Token}, // a grant of another resource
		{Resource: "invoice:1", Owner: second.Owner, Token: second.Token},
	} {
		_, err := c.a.Renew(c.Context(), grant, ttl)
		c.wantLost(err, grant, locks.ErrNotOwner)
		c.wantLost(c.b.Release(c.Context(), grant), grant, locks.ErrNotOwner)
	}
	swapped := locks.Grant{Resource: "invoice:3", Owner: first.Owner, Token: first.Token}
	c.wantLost(c.b.Release(c.Context(), swapped), swapped, locks.ErrSuperseded)
	c.renew(c.a, second.Grant(), 2*ttl)
	c.release(c.a, second.Grant())
	c.wantFree("invoice:2")
	c.expire("invoice:3")
	c.wantFree("invoice:3")
	third = c.acquire(c.b, "invoice:3", "worker-1")
	c.release(c.a, third.Grant())
	c.wantStored(first)
}
