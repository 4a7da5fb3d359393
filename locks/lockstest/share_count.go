package lockstest

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func shareCountPromises() []promise {
	return []promise{
		{name: "as many get in as there are slots, and the next one is told whose share ends first", test: countFull},
		{name: "a slot that was released is free for one", test: countReleased},
		{name: "a slot whose share has ended is free for one", test: countEnded},
		{name: "the slots stand with the first one until the last one has gone", test: countStands},
		{name: "an owner's new attempt takes no second slot, in a full group too", test: countAgain},
		{name: "groups of different resources do not meet", test: countApart},
	}
}

// fill takes so many slots of so many.
func (c *check) fill(n, slots int) []locks.Lock {
	c.Helper()
	c.sharer(c.a)
	shares := make([]locks.Lock, n)
	for i := range shares {
		shares[i] = c.share(c.stores[i%2], fmt.Sprintf("worker-%d", i+1), slots)
	}
	return shares
}

func countFull(c *check) {
	c.sharer(c.a)
	for _, slots := range []int{1, 2, 5} {
		shares := c.fill(slots, slots)
		first := slots / 2
		shares[first] = c.renew(c.b, shares[first].Grant(), ttl/2)
		group := c.wantShared(shares...)
		c.wantOut(c.asks("worker-9", slots), shares[first])
		barging := c.asks("worker-9", slots)
		barging.Barge = true
		c.wantOut(barging, shares[first])
		c.wantOut(c.request(resource, "worker-9"), group)
		c.wantSame("the group after refused tries", c.wantShared(shares...), group)
		for _, share := range shares {
			c.release(c.a, share.Grant())
		}
	}
}

func countReleased(c *check) {
	shares := c.fill(3, 3)
	for i, store := range []locks.Store{c.a, c.b, c.a} {
		c.release(store, shares[i].Grant())
		shares[i] = c.share(c.b, fmt.Sprintf("worker-%d", i+4), 3)
		group := c.wantShared(shares...)
		for _, other := range []locks.Store{c.a, c.b} {
			_, err := other.Acquire(c.Context(), c.asks("worker-9", 3))
			c.wantHeld(err, earliest(shares))
		}
		c.wantSame("the group after refused tries", c.wantShared(shares...), group)
	}
	c.release(c.a, shares[0].Grant())
	c.release(c.b, shares[2].Grant())
	c.wantShared(shares[1], c.share(c.a, "worker-9", 3), c.share(c.b, "worker-8", 3))
}

// earliest is the share that ends first.
func earliest(shares []locks.Lock) locks.Lock {
	first := shares[0]
	for _, share := range shares {
		if share.ExpiresAt.Before(first.ExpiresAt) {
			first = share
		}
	}
	return first
}

func countEnded(c *check) {
	shares := c.fill(2, 2)
	c.expireShare("worker-1")
	c.wantShared(shares[1])
	third := c.share(c.b, "worker-3", 2)
	c.wantShared(shares[1], third)
	c.wantGone(shares[0].Grant(), locks.ErrExpired)
	shares[1] = c.renew(c.a, shares[1].Grant(), ttl/2)
	c.wantOut(c.asks("worker-4", 2), shares[1])
	c.wantOut(c.asks("worker-1", 2), shares[1]) // who was in before, too
	c.wantShared(shares[1], third)
	c.expireShare("worker-2")
	c.wantShared(third, c.share(c.a, "worker-1", 2))
}

func countStands(c *check) {
	c.sharer(c.a)
	for _, held := range []int{locks.Shared, 1, 3} {
		others := []int{locks.Shared, 1, 2, 3, locks.MaxSlots}
		refused := func(shares ...locks.Lock) {
			c.Helper()
			group := c.wantShared(shares...)
			for _, slots := range others {
				if slots != held {
					c.wantUnfit(c.asks("worker-9", slots), held)
					c.wantUnfit(c.asks("worker-1", slots), held) // by one who is in
					barging := c.asks("worker-9", slots)
					barging.Barge = true
					c.wantUnfit(barging, held)
				}
			}
			c.wantSame("the group after refused tries", c.wantShared(shares...), group)
		}
		first := c.share(c.a, "worker-1", held)
		refused(first)
		if held != 1 {
			second := c.share(c.b, "worker-2", held)
			refused(first, second)
			c.release(c.a, first.Grant()) // the first one has gone, the group not
			first = c.share(c.b, "worker-1", held)
			refused(second, first)
			c.release(c.b, second.Grant())
		}
		c.release(c.b, first.Grant())
		for _, slots := range others {
			share := c.share(c.a, "worker-9", slots)
			c.wantShared(share)
			c.release(c.b, share.Grant())
		}
	}
}

func countAgain(c *check) {
	shares := c.fill(2, 3)
	shares[0] = c.share(c.b, "worker-1", 3)
	shares = append(shares, c.share(c.a, "worker-3", 3)) // the third slot is free
	c.wantShared(shares...)
	for i, store := range []locks.Store{c.b, c.a, c.b} {
		old, request := shares[i], c.asks(shares[i].Owner, 3)
		shares[i] = c.granted(c.grant(store, request), old.Owner, 3)
		if shares[i].ID != old.ID || shares[i].Token <= old.Token {
			c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", shares[i].ID, shares[i].Token, old.ID, old.Token)
		}
		c.wantSame("a retry", c.grant(c.a, request), shares[i])
		c.wantGone(old.Grant(), locks.ErrSuperseded)
		c.wantShared(shares...)
	}
	shares[1] = c.renew(c.a, shares[1].Grant(), time.Minute)
	c.wantOut(c.asks("worker-9", 3), shares[1])
}

func countApart(c *check) {
	shares := c.fill(2, 2)
	for i, slots := range []int{1, locks.Shared, 0} {
		request := c.asks("worker-1", slots)
		request.Resource = fmt.Sprintf("invoice:%d", i)
		c.grant(c.b, request)
		request.Owner = "worker-2"
		lock, err := c.a.Acquire(c.Context(), request)
		if (err == nil) != (slots == locks.Shared) {
			c.Errorf("Acquire of a second share, of slots %d: %+v, %v", slots, lock, err)
		}
	}
	c.wantShared(shares...)
	c.release(c.a, shares[0].Grant())
	c.wantShared(shares[1], c.share(c.b, "worker-3", 2))
}
