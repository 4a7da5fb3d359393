package lockstest

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func attemptPromises() []promise {
	return []promise{
		{name: "a retry finds its grant unchanged", test: attemptRetry},
		{name: "a retry after its lease ended is a new grant", test: attemptEnded},
		{name: "a retry after its grant was released is a new grant", test: attemptReleased},
		{name: "a retry after a newer attempt of its owner is a new grant", test: attemptOlder},
		{name: "an attempt is its owner's and its resource's", test: attemptScope},
		{name: "retries at once share one grant", stores: 4, test: attemptAtOnce},
		{name: "release by attempt frees the grant and leaves no row", test: attemptRelease},
		{name: "release by attempt leaves other grants alone", test: attemptReleaseOthers},
		{name: "release by attempt of an ended lease is told that nothing is held", test: attemptReleaseEnded},
	}
}

func attemptRetry(c *check) {
	request := c.request(resource, "worker-1")
	request.Metadata = json.RawMessage(`{"host":"a"}`)
	asked := time.Now()
	first := c.grant(c.a, request)
	retry := request
	retry.TTL = time.Minute
	retry.Metadata = json.RawMessage(`{"host":"b"}`)
	for _, store := range []locks.Store{c.a, c.b} {
		lock := c.grant(store, retry)
		c.wantSame("the retry", lock, first)
		c.wantRemaining("the retry", lock.Remaining, ttl, asked)
	}
	c.wantStored(first)

	asked = time.Now()
	renewed := c.renew(c.a, first.Grant(), 2*ttl)
	lock := c.grant(c.b, request)
	c.wantSame("the retry after a renewal", lock, renewed)
	c.wantRemaining("the retry after a renewal", lock.Remaining, 2*ttl, asked)
	c.wantRows(1)
	c.release(c.b, lock.Grant())
}

func attemptEnded(c *check) {
	request := c.request(resource, "worker-1")
	first := c.grant(c.a, request)
	c.expire(resource)
	request.Metadata = json.RawMessage(`{"retry":true}`)
	request.TTL = time.Minute
	lock := c.grant(c.b, request)
	if lock.ID != first.ID || lock.Token <= first.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", lock.ID, lock.Token, first.ID, first.Token)
	}
	c.wantSame("the retry", lock, locks.Lock{
		ID: first.ID, Resource: resource, Owner: "worker-1", Token: lock.Token,
		AcquiredAt: lock.AcquiredAt, ExpiresAt: lock.AcquiredAt.Add(time.Minute), Metadata: request.Metadata,
	})
	c.wantStored(lock)
	c.wantLost(c.a.Release(c.Context(), first.Grant()), first.Grant(), locks.ErrSuperseded)
}

func attemptReleased(c *check) {
	request := c.request(resource, "worker-1")
	first := c.grant(c.a, request)
	c.release(c.a, first.Grant())
	lock := c.grant(c.b, request)
	if lock.ID == first.ID || lock.Token <= first.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", lock.ID, lock.Token, first.ID, first.Token)
	}
}

func attemptOlder(c *check) {
	older := c.request(resource, "worker-1")
	first := c.grant(c.a, older)
	second := c.acquire(c.b, resource, "worker-1")
	third := c.grant(c.a, older)
	if second.Token <= first.Token || third.Token <= second.Token {
		c.Errorf("tokens %d, %d, %d, want them growing", first.Token, second.Token, third.Token)
	}
	c.wantStored(third)
}

func attemptScope(c *check) {
	request := c.request(resource, "worker-1")
	first := c.grant(c.a, request)
	other := request
	other.Owner = "worker-2"
	_, err := c.b.Acquire(c.Context(), other)
	c.wantHeld(err, first)

	elsewhere := request
	elsewhere.Resource = "invoice:2026-0043"
	if lock := c.grant(c.b, elsewhere); lock.ID == first.ID || lock.Token == first.Token || lock.Resource != elsewhere.Resource {
		c.Errorf("the attempt on another resource was given %+v, want a grant of its own beside %+v", lock, first)
	}
	c.wantStored(first)

	c.expire(resource)
	taken := c.grant(c.b, other)
	if taken.Owner != "worker-2" || taken.Token <= first.Token {
		c.Errorf("granted %+v, want a takeover by worker-2 with a token above %d", taken, first.Token)
	}
	_, err = c.a.Acquire(c.Context(), request)
	c.wantHeld(err, taken)
}

func attemptAtOnce(c *check) {
	request := c.request(resource, "worker-1")
	grants := map[int64]int{}
	for _, a := range c.atOnce(12, func(_ int, store locks.Store) (locks.Lock, error) {
		return store.Acquire(c.Context(), request)
	}) {
		switch {
		case a.err == nil:
			grants[a.lock.Token]++
		case !errors.Is(a.err, locks.ErrHeld): // held, holder unknown: the same attempt was just being granted
			c.Errorf("err = %v, want the grant, or ErrHeld", a.err)
		}
	}
	if len(grants) != 1 {
		c.Fatalf("retries at once were given %d grants (token: times) %v, want 1", len(grants), grants)
	}
	lock := c.grant(c.b, request)
	if grants[lock.Token] == 0 {
		c.Errorf("a later retry was given token %d, want the one of before: %v", lock.Token, grants)
	}
	c.wantRows(1)
}

func attemptRelease(c *check) {
	for _, renew := range []bool{false, true} {
		request := c.request(resource, "worker-1")
		lock := c.grant(c.a, request)
		if renew {
			lock = c.renew(c.a, lock.Grant(), 2*ttl)
		}
		if err := c.b.ReleaseAttempt(c.Context(), resource, "worker-1", request.Attempt); err != nil {
			c.Fatalf("ReleaseAttempt: %v", err)
		}
		c.wantFree(resource)
		c.wantRows(0)
		c.wantNoAttempt(request)
		c.wantLost(c.a.Release(c.Context(), lock.Grant()), lock.Grant(), locks.ErrNotHeld)
		next := c.acquire(c.a, resource, "worker-2")
		if next.ID == lock.ID || next.Token <= lock.Token {
			c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", next.ID, next.Token, lock.ID, lock.Token)
		}
		c.release(c.a, next.Grant())
	}
}

// wantNoAttempt says that releasing the attempt finds nothing to release.
func (c *check) wantNoAttempt(request locks.Request) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		err := store.ReleaseAttempt(c.Context(), request.Resource, request.Owner, request.Attempt)
		if !errors.Is(err, locks.ErrNotHeld) || !errors.Is(err, locks.ErrLost) {
			c.Errorf("ReleaseAttempt(%.80q, %.80q, %.80q): %v, want ErrNotHeld", request.Resource, request.Owner, request.Attempt, err)
		}
	}
}

func attemptReleaseOthers(c *check) {
	older := c.request(resource, "worker-1")
	c.wantNoAttempt(older)
	c.wantRows(0)
	c.grant(c.a, older)
	current := c.request(resource, "worker-1")
	lock := c.grant(c.b, current)
	c.wantNoAttempt(older)

	other := current
	other.Owner = "worker-2"
	c.wantNoAttempt(other)
	elsewhere := current
	elsewhere.Resource = "invoice:2026-0043"
	c.wantNoAttempt(elsewhere)
	never := current
	never.Attempt = "never used"
	c.wantNoAttempt(never)
	c.wantStored(lock)
	c.wantSame("the current attempt", c.grant(c.a, current), lock)
}

func attemptReleaseEnded(c *check) {
	request := c.request(resource, "worker-1")
	c.grant(c.a, request)
	c.expire(resource)
	c.wantNoAttempt(request)
	c.wantFree(resource)
	taken := c.acquire(c.b, resource, "worker-2")
	c.wantNoAttempt(request)
	c.wantStored(taken)
}
