package lockstest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func shareSeenPromises() []promise {
	return []promise{
		{name: "the holders are the live shares, in the order of their tokens", test: seenHolders},
		{name: "who holds it alone is no holder of a share", test: seenAlone},
		{name: "metadata is each share's own, and the group has none", test: seenMetadata},
		{name: "a list has the group, as one lease without an owner", test: seenList},
		{name: "slots out of rule are refused", test: seenSlots},
		{name: "limits of holders out of rule are refused", test: seenLimits},
	}
}

func seenHolders(c *check) {
	readers := c.readers(5)
	readers[1] = c.share(c.a, "worker-2", locks.Shared)
	readers[3] = c.renew(c.b, readers[3].Grant(), 2*ttl)
	c.release(c.a, readers[4].Grant())
	want := []locks.Lock{readers[0], readers[2], readers[3], readers[1]}
	c.wantShared(want...)
	for limit, count := range map[int]int{1: 1, 3: 3, 4: 4, 5: 4, locks.MaxListHolders: 4} {
		for _, store := range []locks.Store{c.a, c.b} {
			got := c.holders(store, limit)
			if len(got) != count {
				c.Fatalf("Holders with limit %d: %+v, want %d", limit, got, count)
			}
			for i, lock := range got {
				c.wantSame(fmt.Sprintf("Holders with limit %d", limit), lock, want[i])
				if lock.Remaining <= 0 || lock.Remaining > lock.ExpiresAt.Sub(lock.AcquiredAt) {
					c.Errorf("Holders: Remaining = %v of a share from %v to %v", lock.Remaining, lock.AcquiredAt, lock.ExpiresAt)
				}
				if lock.AcquiredAt.Location() != time.UTC || lock.ExpiresAt.Location() != time.UTC {
					c.Errorf("Holders: %+v, want its times in UTC", lock)
				}
			}
		}
	}
}

func seenAlone(c *check) {
	c.sharer(c.a)
	c.wantNoShares()
	lock := c.acquire(c.a, resource, "worker-1")
	c.wantNoShares()
	c.release(c.b, lock.Grant())
	c.wantNoShares()
	request := c.asks("worker-1", locks.Shared)
	request.Resource = "invoice:2026-0043"
	c.grant(c.a, request)
	c.wantNoShares()
}

func seenMetadata(c *check) {
	c.sharer(c.a)
	var shares []locks.Lock
	for i, metadata := range []json.RawMessage{json.RawMessage(`{ "host":"a" }`), nil, json.RawMessage(`{"slots":7}`)} {
		request := c.asks(fmt.Sprintf("worker-%d", i), 3)
		request.Metadata = slices.Clone(metadata)
		share := c.grant(c.stores[i%2], request)
		if string(share.Metadata) != string(metadata) {
			c.Errorf("granted with the metadata %q, want %q", share.Metadata, metadata)
		}
		shares = append(shares, share)
		c.wantShared(shares...)
	}
	shares[0] = c.renew(c.b, shares[0].Grant(), 2*ttl)
	request := c.asks("worker-1", 3)
	request.Metadata = json.RawMessage(`{"host":"b"}`)
	shares[1] = c.grant(c.b, request)
	c.wantShared(shares...)
}

func seenList(c *check) {
	lister := c.lister(c.a)
	readers := c.readers(3)
	before, after := c.acquire(c.a, "a", "worker-1"), c.acquire(c.b, "z", "worker-1")
	group := c.wantShared(readers...)
	want := []locks.Lock{before, group, after}
	got := c.listAll(lister, locks.ListQuery{})
	if len(got) != len(want) {
		c.Fatalf("List: %+v, want %+v", got, want)
	}
	for i := range got {
		c.wantSame("List", got[i], want[i])
	}
	c.release(c.a, readers[0].Grant())
	c.wantNames("List", c.listAll(lister, locks.ListQuery{Prefix: resource}), []string{resource})
	c.release(c.b, readers[1].Grant())
	c.release(c.a, readers[2].Grant())
	c.wantNames("List", c.listAll(lister, locks.ListQuery{}), []string{"a", "z"})
}

func seenSlots(c *check) {
	share := c.readers(1)[0]
	for _, slots := range []int{-2, math.MinInt, locks.MaxSlots + 1, math.MaxInt} {
		for i, store := range []locks.Store{c.a, c.b} {
			for _, name := range []string{resource, "free"} {
				request := c.asks("worker-2", slots)
				request.Resource = name
				lock, err := store.Acquire(c.Context(), request)
				c.wantInvalid(err, "slots", "Acquire with slots %d", slots)
				c.wantSame("the record beside the error", lock, locks.Lock{})
				if queuer, ok := c.stores[i].(locks.Queuer); ok {
					_, err := queuer.Enqueue(c.Context(), request, 0)
					c.wantInvalid(err, "slots", "Enqueue with slots %d", slots)
				}
			}
		}
	}
	c.wantShared(share)
	c.wantFree("free")
	c.wantNobodyWaits(resource, "free")
	c.release(c.a, share.Grant())
	for _, slots := range []int{1, locks.MaxSlots} {
		share = c.share(c.a, "worker-1", slots)
		c.wantShared(share)
		c.release(c.b, share.Grant())
	}
}

func seenLimits(c *check) {
	share := c.readers(1)[0]
	for _, store := range []locks.Store{c.a, c.b} {
		for _, limit := range []int{0, -1, math.MinInt, locks.MaxListHolders + 1, math.MaxInt} {
			got, err := c.sharer(store).Holders(c.Context(), resource, limit)
			c.wantInvalid(err, "limit", "Holders with limit %d", limit)
			if len(got) > 0 {
				c.Errorf("Holders with limit %d returned %+v beside its error", limit, got)
			}
		}
	}
	c.wantShared(share)
}
