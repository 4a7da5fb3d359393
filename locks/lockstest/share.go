package lockstest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

func sharePromises() []promise {
	return []promise{
		{name: "readers hold it together, and keep out who would hold it alone", test: shareReaders},
		{name: "who holds it alone keeps readers out", test: shareAlone},
		{name: "who holds it alone is refused a share, not kept waiting for itself", test: shareOfOwn},
		{name: "who has a share is refused all of it, not kept waiting for itself", test: shareThenAll},
		{name: "the owner's new attempt is a new grant of its share in place", test: shareAgain},
		{name: "a retry finds its share, and no other attempt does", test: shareRetry},
		{name: "release by attempt frees the share of that attempt, and no other", test: shareReleaseAttempt},
		{name: "tokens grow with every share and every lease", test: shareTokens},
	}
}

// sharer returns the store's ability to share, or skips the test.
func (c *check) sharer(store locks.Store) locks.Sharer {
	c.Helper()
	sharer, ok := store.(locks.Sharer)
	if !ok {
		c.Skipf("not tested: shared leases (%T is no locks.Sharer)", store)
	}
	return sharer
}

// asks is a new attempt of the owner that asks for a share, as the slots say.
func (c *check) asks(owner string, slots int) locks.Request {
	request := c.request(resource, owner)
	request.Slots = slots
	return request
}

// share is a new attempt of the owner that must be granted a share.
func (c *check) share(store locks.Store, owner string, slots int) locks.Lock {
	c.Helper()
	return c.granted(c.grant(store, c.asks(owner, slots)), owner, slots)
}

// granted says that the record of a new grant is of a share.
func (c *check) granted(lock locks.Lock, owner string, slots int) locks.Lock {
	c.Helper()
	if lock.Resource != resource || lock.Owner != owner || lock.Slots != slots || lock.ID <= 0 || lock.Token <= 0 ||
		lock.ExpiresAt.Sub(lock.AcquiredAt) != ttl || lock.Remaining <= 0 {
		c.Errorf("granted %+v, want a share of %q, of slots %d, for %v", lock, owner, slots, ttl)
	}
	return lock
}

// readers needs a store that shares, and has so many readers get in.
func (c *check) readers(n int) []locks.Lock {
	c.Helper()
	c.sharer(c.a)
	readers := make([]locks.Lock, n)
	for i := range readers {
		readers[i] = c.share(c.stores[i%2], fmt.Sprintf("worker-%d", i+1), locks.Shared)
	}
	return readers
}

// holders is who has shares of the resource, by the store's word, at most limit of them.
func (c *check) holders(store locks.Store, limit int) []locks.Lock {
	c.Helper()
	holders, err := c.sharer(store).Holders(c.Context(), resource, limit)
	if err != nil {
		c.Fatalf("Holders(%q, %d): %v", resource, limit, err)
	}
	return holders
}

// wantShared says that these have the resource together, by both stores' word, and returns their group.
func (c *check) wantShared(shares ...locks.Lock) locks.Lock {
	c.Helper()
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(x, y locks.Lock) int { return cmp.Compare(x.Token, y.Token) })
	last := slices.MaxFunc(shares, func(x, y locks.Lock) int { return x.ExpiresAt.Compare(y.ExpiresAt) })
	for _, store := range []locks.Store{c.b, c.a} {
		got := c.holders(store, locks.MaxListHolders)
		if len(got) != len(shares) {
			c.Fatalf("Holders: %+v, want %+v", got, shares)
		}
		for i := range got {
			c.wantSame("Holders", got[i], shares[i])
		}
		group := c.get(store, resource)
		if group.Resource != resource || group.Owner != "" || group.Slots != shares[0].Slots || !group.ExpiresAt.Equal(last.ExpiresAt) ||
			group.Remaining <= 0 || group.Metadata != nil {
			c.Errorf("Get = %+v, want a group of slots %d that ends at %v", group, shares[0].Slots, last.ExpiresAt)
		}
		if slices.ContainsFunc(shares, func(share locks.Lock) bool { return share.Token == group.Token }) {
			c.Errorf("Get = %+v, want another token than each share has: %+v", group, shares)
		}
	}
	return c.get(c.a, resource)
}

// wantNoShares says that nobody has a share, by both stores' word.
func (c *check) wantNoShares() {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		if got := c.holders(store, locks.MaxListHolders); len(got) > 0 {
			c.Errorf("Holders: %+v, want none", got)
		}
	}
}

// wantOut says that the request is refused through both stores, for this holder.
func (c *check) wantOut(request locks.Request, holder locks.Lock) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		lock, err := store.Acquire(c.Context(), request)
		c.wantHeld(err, holder)
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
}

// wantSlots says that err is a *SlotsError, which is nothing to wait for.
func (c *check) wantSlots(err error, held, asked int) {
	c.Helper()
	var refused *locks.SlotsError
	switch {
	case !errors.Is(err, locks.ErrSlots) || !errors.As(err, &refused) || errors.Is(err, locks.ErrHeld):
		c.Errorf("err = %v, want a *SlotsError", err)
	case *refused != locks.SlotsError{Resource: resource, Held: held, Asked: asked}:
		c.Errorf("err = %+v, want it held as %d, asked for as %d", *refused, held, asked)
	}
}

// wantUnfit says that the request is refused through both stores, since the resource is held otherwise.
func (c *check) wantUnfit(request locks.Request, held int) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		lock, err := store.Acquire(c.Context(), request)
		c.wantSlots(err, held, request.Slots)
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
}

func shareReaders(c *check) {
	c.sharer(c.a)
	var readers []locks.Lock
	for i := range 6 {
		readers = append(readers, c.share(c.stores[i%2], fmt.Sprintf("worker-%d", 9-i), locks.Shared))
		group := c.wantShared(readers...)
		c.wantOut(c.request(resource, "worker-0"), group)
		c.wantSame("the group after a refused try", c.wantShared(readers...), group)
	}
}

func shareAlone(c *check) {
	c.sharer(c.a)
	holder := c.acquire(c.a, resource, "worker-0")
	for _, slots := range []int{locks.Shared, 1, 7} {
		c.wantOut(c.asks("worker-1", slots), holder)
	}
	c.wantStored(holder)
	c.wantNoShares()
	c.release(c.b, holder.Grant())
	c.wantShared(c.share(c.a, "worker-1", locks.Shared), c.share(c.b, "worker-2", locks.Shared))
}

func shareOfOwn(c *check) {
	c.sharer(c.a)
	request := c.request(resource, "worker-1")
	lock := c.grant(c.a, request)
	for _, slots := range []int{locks.Shared, 1, 7} {
		retry, barging := request, c.asks("worker-1", slots)
		retry.Slots, barging.Barge = slots, true
		for _, asked := range []locks.Request{retry, barging, c.asks("worker-1", slots)} {
			c.wantUnfit(asked, 0)
		}
	}
	c.wantStored(lock)
	c.wantNoShares()
	c.release(c.a, lock.Grant())
	c.share(c.b, "worker-1", locks.Shared)
}

func shareThenAll(c *check) {
	c.sharer(c.a)
	for _, slots := range []int{locks.Shared, 1, 2} {
		request := c.asks("worker-1", slots)
		shares := []locks.Lock{c.grant(c.a, request)}
		if slots != 1 {
			shares = append(shares, c.share(c.b, "worker-2", slots))
		}
		retry, barging := request, c.request(resource, "worker-1")
		retry.Slots, barging.Barge = 0, true
		for _, asked := range []locks.Request{retry, barging, c.request(resource, "worker-1")} {
			c.wantUnfit(asked, slots)
		}
		if multi, ok := c.b.(locks.MultiAcquirer); ok {
			_, err := multi.AcquireAll(c.Context(), c.requests("worker-1", "beside it", resource))
			c.wantSlots(err, slots, 0)
			c.wantFree("beside it")
		}
		if c.h.Begin != nil {
			tx := c.begin(c.b)
			_, err := tx.Acquire(c.Context(), c.request(resource, "worker-1"))
			c.wantSlots(err, slots, 0)
			c.wantUsable(tx)
			c.commit(tx)
		}
		c.wantShared(shares...)
		for _, share := range shares {
			c.release(c.a, share.Grant())
		}
		lock := c.acquire(c.b, resource, "worker-1")
		c.release(c.b, lock.Grant())
	}
}

func shareAgain(c *check) {
	readers := c.readers(3)
	for _, store := range []locks.Store{c.a, c.b} {
		old := readers[1]
		readers[1] = c.share(store, old.Owner, locks.Shared)
		if readers[1].ID != old.ID || readers[1].Token <= readers[2].Token || readers[1].Token <= old.Token {
			c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", readers[1].ID, readers[1].Token, old.ID, old.Token)
		}
		c.wantShared(readers...)
		for _, store := range []locks.Store{c.a, c.b} {
			lock, err := store.Renew(c.Context(), old.Grant(), 2*ttl)
			c.wantLost(err, old.Grant(), locks.ErrSuperseded)
			c.wantSame("the record beside the error", lock, locks.Lock{})
			c.wantLost(store.Release(c.Context(), old.Grant()), old.Grant(), locks.ErrSuperseded)
		}
		c.wantShared(readers...)
	}
}

func shareRetry(c *check) {
	neighbour := c.readers(1)[0]
	request := c.asks("worker-9", locks.Shared)
	share := c.grant(c.a, request)
	for _, store := range []locks.Store{c.a, c.b} {
		c.wantSame("a retry", c.grant(store, request), share)
	}
	share = c.renew(c.a, share.Grant(), 2*ttl)
	c.wantSame("a retry after the renewal", c.grant(c.b, request), share)
	other := request
	other.Owner = "worker-8"
	third := c.grant(c.b, other)
	c.wantShared(neighbour, share, third)
	next := c.share(c.a, "worker-9", locks.Shared)
	again := c.grant(c.b, request) // the older attempt's grant is gone
	if again.Token <= next.Token || again.ID != share.ID {
		c.Errorf("a retry of an older attempt: id %d, token %d after id %d, token %d", again.ID, again.Token, next.ID, next.Token)
	}
	c.wantShared(neighbour, third, again)
}

func shareReleaseAttempt(c *check) {
	neighbour := c.readers(1)[0]
	older := c.asks("worker-9", locks.Shared)
	c.grant(c.a, older)
	current := c.asks("worker-9", locks.Shared)
	share := c.grant(c.b, current)
	others := older
	others.Owner = neighbour.Owner
	for _, request := range []locks.Request{older, others, c.asks("worker-9", locks.Shared), c.asks("worker-8", locks.Shared)} {
		c.wantNoAttempt(request)
	}
	c.wantShared(neighbour, share)
	release := func(request locks.Request) {
		c.Helper()
		if err := c.a.ReleaseAttempt(c.Context(), resource, request.Owner, request.Attempt); err != nil {
			c.Fatalf("ReleaseAttempt: %v", err)
		}
		c.wantNoAttempt(request)
	}
	release(current)
	c.wantShared(neighbour)
	c.wantLost(c.b.Release(c.Context(), share.Grant()), share.Grant(), locks.ErrNotOwner)
	c.grant(c.b, current)
	c.release(c.a, neighbour.Grant())
	release(current)
	c.wantFree(resource)
	c.wantNoShares()
	c.wantRows(0)
}

func shareTokens(c *check) {
	c.sharer(c.a)
	var last int64
	larger := func(what string, lock locks.Lock) locks.Lock {
		c.Helper()
		if lock.Token <= last {
			c.Errorf("%s: token %d after %d", what, lock.Token, last)
		}
		last = lock.Token
		return lock
	}
	for i := range 2 {
		a, b := c.stores[i], c.stores[1-i]
		lock := larger("alone", c.acquire(a, resource, "worker-1"))
		c.release(b, lock.Grant())
		first := larger("the first share after a release", c.share(b, "worker-1", locks.Shared))
		second := larger("the second share", c.share(a, "worker-2", locks.Shared))
		larger("the group's other owner", c.share(b, "worker-3", locks.Shared))
		third := larger("again", c.share(a, "worker-3", locks.Shared))
		for _, share := range []locks.Lock{first, third, second} {
			c.release(a, share.Grant())
		}
		share := larger("counted, after all were released", c.share(b, "worker-1", 2))
		c.release(b, share.Grant())
		larger("alone, after that", c.acquire(a, resource, "worker-2"))
		c.expire(resource)
		share = larger("a share of what has ended", c.share(b, "worker-2", locks.Shared))
		c.release(a, share.Grant())
	}
}
