package lockstest

import (
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func shareEndPromises() []promise {
	return []promise{
		{name: "renew moves the end of a share, and of its group with it", test: shareRenew},
		{name: "any token renews and releases the owner's current share", test: shareAnyToken},
		{name: "a share that has ended is gone, and the others stay", test: shareEnded},
		{name: "when the last share has ended the resource is free", test: shareLastEnded},
		{name: "whoever holds it since makes late calls of an old share the calls of another owner", test: shareLate},
		{name: "the release of a share leaves the others, and of the last one no row", test: shareRelease},
		{name: "a forced release by the group's token ends all of its shares", test: shareForceGroup},
		{name: "a forced release by a share's token ends that one", test: shareForceOne},
		{name: "a forced release by another token ends nothing", test: shareForceOther},
	}
}

// expireShare ends the owner's share through the back door, or skips the test.
func (c *check) expireShare(owner string) {
	c.Helper()
	if c.h.ExpireShare == nil {
		c.Skip("not tested: shares that end by time (the harness has no ExpireShare)")
	}
	c.h.ExpireShare(c.TB, c.b, resource, owner)
}

// wantGone says that the grant's renewal and release are refused through both stores, for the reason.
func (c *check) wantGone(grant locks.Grant, reason error) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		lock, err := store.Renew(c.Context(), grant, ttl)
		c.wantLost(err, grant, reason)
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
	c.wantLost(c.b.Release(c.Context(), grant), grant, reason)
}

func anyToken(lock locks.Lock) locks.Grant {
	return locks.Grant{Resource: lock.Resource, Owner: lock.Owner, Token: locks.AnyToken}
}

func shareRenew(c *check) {
	readers := c.readers(2)
	for _, renewal := range []time.Duration{2 * ttl, ttl + time.Minute, ttl / 2} { // the group ends with the other one in the end
		want := readers[0]
		asked := time.Now()
		readers[0] = c.renew(c.b, want.Grant(), renewal)
		c.wantRemaining("Renew", readers[0].Remaining, renewal, asked)
		if readers[0].ExpiresAt.Equal(want.ExpiresAt) {
			c.Errorf("renewed for %v, and it ends at %v as before", renewal, want.ExpiresAt)
		}
		want.ExpiresAt = readers[0].ExpiresAt
		c.wantSame("Renew", readers[0], want)
		group := c.wantShared(readers...)
		c.wantOut(c.request(resource, "worker-0"), group)
	}
	c.release(c.a, readers[1].Grant())
	c.wantShared(readers[0]) // the group ends earlier
}

func shareAnyToken(c *check) {
	readers := c.readers(2)
	readers[0] = c.share(c.b, readers[0].Owner, locks.Shared)
	want := readers[0]
	readers[0] = c.renew(c.a, anyToken(want), 2*ttl)
	want.ExpiresAt = readers[0].ExpiresAt
	c.wantSame("Renew by any token", readers[0], want)
	c.wantShared(readers...)
	c.release(c.b, anyToken(readers[0]))
	c.wantShared(readers[1])
	c.wantGone(anyToken(readers[0]), locks.ErrNotOwner) // the group has it
	c.release(c.a, anyToken(readers[1]))
	c.wantFree(resource)
	c.wantRows(0)
}

func shareEnded(c *check) {
	readers := c.readers(3)
	request := c.asks("worker-9", locks.Shared)
	readers[1] = c.grant(c.a, request)
	c.share(c.b, "worker-2", locks.Shared)
	c.expireShare("worker-2")
	c.expireShare("worker-9")
	c.expireShare("worker-9")
	c.expireShare("worker-8")
	ended := readers[1]
	c.wantShared(readers[0], readers[2])
	c.wantGone(ended.Grant(), locks.ErrExpired)
	c.wantNoAttempt(request)
	c.wantShared(readers[0], readers[2])
	c.expireShare("worker-1")
	c.wantShared(readers[2])
	next := c.grant(c.b, request) // its share was over: a new grant
	if next.Token <= readers[2].Token {
		c.Errorf("token %d after %d", next.Token, readers[2].Token)
	}
	c.wantShared(readers[2], next)
	c.wantGone(ended.Grant(), locks.ErrSuperseded)
	c.expireShare("worker-9")
	c.wantGone(anyToken(ended), locks.ErrExpired)
}

func shareLastEnded(c *check) {
	for _, slots := range []int{locks.Shared, 2} {
		c.sharer(c.a)
		first, second := c.share(c.a, "worker-1", slots), c.share(c.b, "worker-2", slots)
		c.expireShare("worker-2")
		c.wantOut(c.request(resource, "worker-3"), c.wantShared(first))
		c.expireShare("worker-1")
		c.wantFree(resource)
		c.wantNoShares()
		for _, share := range []locks.Lock{first, second} {
			for _, store := range []locks.Store{c.a, c.b} {
				_, err := store.Renew(c.Context(), share.Grant(), ttl)
				c.wantLost(err, share.Grant(), locks.ErrExpired)
			}
		}
		c.wantFree(resource)
		third := c.share(c.a, "worker-3", 3) // of any slots
		if third.Token <= second.Token {
			c.Errorf("token %d after %d", third.Token, second.Token)
		}
		c.wantShared(third)
		c.expireShare("worker-3")
		lock := c.acquire(c.b, resource, "worker-1")
		c.wantStored(lock)
		c.wantNoShares()
		c.release(c.a, lock.Grant())
	}
}

func shareLate(c *check) {
	readers := c.readers(2)
	c.expireShare("worker-1")
	c.expireShare("worker-2")
	lock := c.acquire(c.b, resource, "worker-2")
	c.wantGone(readers[0].Grant(), locks.ErrNotOwner)
	c.wantGone(anyToken(readers[0]), locks.ErrNotOwner)
	c.wantGone(readers[1].Grant(), locks.ErrSuperseded)
	c.wantStored(lock)
	c.wantNoShares()
	c.release(c.b, lock.Grant())
	share := c.share(c.a, "worker-3", locks.Shared)
	for _, late := range readers {
		if err := c.b.Release(c.Context(), late.Grant()); !errors.Is(err, locks.ErrLost) {
			c.Errorf("Release of a share of a group that has gone: %v, want ErrLost", err)
		}
	}
	c.wantGone(lock.Grant(), locks.ErrNotOwner)
	c.wantShared(share)
}

func shareRelease(c *check) {
	readers := c.readers(4)
	for len(readers) > 1 {
		last := readers[0]
		c.release(c.b, last.Grant())
		readers = readers[1:]
		c.wantShared(readers...)
		c.wantGone(last.Grant(), locks.ErrNotOwner) // the group has it
		c.wantOut(c.request(resource, "worker-0"), c.wantShared(readers...))
	}
	c.release(c.a, readers[0].Grant())
	c.wantFree(resource)
	c.wantNoShares()
	c.wantRows(0)
	c.wantGone(readers[0].Grant(), locks.ErrNotHeld)
	c.acquire(c.b, resource, "worker-0")
}

func shareForceGroup(c *check) {
	c.forcer(c.a)
	for _, slots := range []int{locks.Shared, 3} {
		c.sharer(c.a)
		shares := []locks.Lock{c.share(c.a, "worker-1", slots), c.share(c.b, "worker-2", slots), c.share(c.b, "worker-3", slots)}
		c.forceRelease(c.b, c.wantShared(shares...))
		c.wantFree(resource)
		c.wantNoShares()
		c.wantRows(0)
		for _, share := range shares {
			c.wantGone(share.Grant(), locks.ErrNotHeld)
		}
		next := c.share(c.a, "worker-4", slots)
		c.wantGone(shares[0].Grant(), locks.ErrNotOwner)
		c.wantShared(next)
		c.release(c.a, next.Grant())
	}
}

func shareForceOne(c *check) {
	c.forcer(c.a)
	readers := c.readers(3)
	readers[1] = c.renew(c.a, readers[1].Grant(), 2*ttl)
	c.forceRelease(c.b, readers[1])
	c.wantGone(readers[1].Grant(), locks.ErrNotOwner)
	c.wantShared(readers[0], readers[2])
	c.forceRelease(c.a, readers[0])
	c.wantShared(readers[2])
	c.forceRelease(c.b, readers[2])
	c.wantFree(resource)
	c.wantNoShares()
	c.wantRows(0)
}

func shareForceOther(c *check) {
	forcer := c.forcer(c.b)
	readers := c.readers(3)
	old := readers[0]
	readers[0] = c.share(c.a, "worker-1", locks.Shared)
	c.expireShare("worker-2")
	ended := readers[1]
	readers = []locks.Lock{readers[0], readers[2]}
	for _, token := range []int64{old.Token, ended.Token, readers[0].Token + 10, 1<<53 - 1} {
		lock, err := forcer.ForceRelease(c.Context(), resource, token)
		if !errors.Is(err, locks.ErrSuperseded) {
			c.Errorf("ForceRelease with the token %d: %v, want ErrSuperseded", token, err)
		}
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
	c.wantShared(readers...)
}
