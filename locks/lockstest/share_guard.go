package lockstest

import (
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func shareGuardPromises() []promise {
	return []promise{
		{name: "a guarded share is neither released nor replaced until the transaction ends", stores: 3, test: shareGuardKeeps},
		{name: "the others of the group come and go, and its renewals go on", test: shareGuardOthers},
		{name: "past its end it keeps out who would hold it alone, and who would take its slot", test: shareGuardPastEnd},
		{name: "past its end it keeps its slot, and no more than that", test: shareGuardSlot},
		{name: "past the end of its group of readers nobody holds it alone", test: shareGuardReaders},
		{name: "a share that is not current is refused, and nothing is left behind", test: shareGuardGone},
		{name: "a savepoint's rollback ends the guards taken in it, and its release does not", test: shareGuardSavepoint},
		{name: "two transactions guard one share, or two of a group", test: shareGuardTwice},
		{name: "a share is not acquired, renewed or released in a transaction", test: shareInTx},
		{name: "many resources are acquired alone", test: shareOfMany},
	}
}

// shareGuardKeeps asks for all at once: each waits for a limit.
func shareGuardKeeps(c *check) {
	c.sharer(c.a)
	c.needsTransactions()
	request := c.asks("worker-1", locks.Shared)
	shares := []locks.Lock{c.grant(c.b, request), c.share(c.b, "worker-2", locks.Shared)}
	group := c.wantShared(shares...)
	tx := c.begin(c.a)
	c.guard(tx, shares[0].Grant())
	c.guard(tx, shares[0].Grant()) // again is as once
	type call struct {
		name   string
		writes bool // where there is one writer: others are refused on a read
		want   error
		do     func() error
	}
	acquire := func(request locks.Request) func() error {
		return func() error { _, err := c.b.Acquire(c.Context(), request); return err }
	}
	calls := []call{
		{"Release", true, locks.ErrGuarded, func() error { return c.b.Release(c.Context(), shares[0].Grant()) }},
		{"ReleaseAttempt", true, locks.ErrGuarded, func() error { return c.b.ReleaseAttempt(c.Context(), resource, "worker-1", request.Attempt) }},
		{"its owner's new attempt", true, locks.ErrHeld, acquire(c.asks("worker-1", locks.Shared))},
		{"an exclusive acquire", false, locks.ErrHeld, acquire(c.request(resource, "worker-9"))},
	}
	if forcer, ok := c.b.(locks.ForceReleaser); ok {
		for name, token := range map[string]int64{"ForceRelease of the group": group.Token, "ForceRelease of the share": shares[0].Token} {
			calls = append(calls, call{name, true, locks.ErrGuarded, func() error {
				_, err := forcer.ForceRelease(c.Context(), resource, token)
				return err
			}})
		}
	}
	for i, a := range c.atOnce(len(calls), func(i int, _ locks.Store) (locks.Lock, error) { return locks.Lock{}, calls[i].do() }) {
		want := calls[i].want
		if c.h.OneWriter && calls[i].writes {
			want = locks.ErrBusy
		}
		if !errors.Is(a.err, want) || errors.Is(a.err, locks.ErrLost) {
			c.Errorf("%s beside the guard of a share: %v, want: %v", calls[i].name, a.err, want)
		}
	}
	c.wantSame("the group", c.wantShared(shares...), group)
	c.wantUsable(tx)
	c.commit(tx)
	c.wantShared(shares...)
	next := c.share(c.b, "worker-1", locks.Shared)
	c.release(c.b, next.Grant())
	c.release(c.b, shares[1].Grant())
	c.wantRows(0)
	c.acquire(c.b, resource, "worker-9")
}

func shareGuardOthers(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	for _, slots := range []int{locks.Shared, 3} {
		request := c.asks("worker-1", slots)
		shares := []locks.Lock{c.grant(c.b, request), c.share(c.b, "worker-2", slots)}
		tx := c.begin(c.a)
		c.guard(tx, shares[0].Grant())
		shares = append(shares, c.share(c.b, "worker-3", slots))
		c.wantShared(shares...)
		c.release(c.b, shares[1].Grant())
		shares[1] = c.share(c.b, "worker-4", slots)
		shares[1] = c.share(c.b, "worker-4", slots)
		for _, renewal := range []time.Duration{2 * ttl, ttl / 2} {
			shares[0] = c.renew(c.b, shares[0].Grant(), renewal)
			c.wantSame("a retry of the guarded one", c.grant(c.b, request), shares[0])
			c.wantShared(shares...)
		}
		if forcer, ok := c.b.(locks.ForceReleaser); ok {
			if _, err := forcer.ForceRelease(c.Context(), resource, shares[2].Token); err != nil {
				c.Errorf("ForceRelease of another share than the guarded one: %v", err)
			}
		} else {
			c.release(c.b, shares[2].Grant())
		}
		c.release(c.b, shares[1].Grant())
		c.wantShared(shares[0])
		c.guard(tx, shares[0].Grant())
		c.commit(tx)
		c.wantShared(shares[0])
		c.release(c.b, shares[0].Grant())
		c.wantRows(0)
	}
}

// wantOutBeside says that the requests are refused as held beside an open transaction, and that they change nothing.
func (c *check) wantOutBeside(requests ...locks.Request) {
	c.Helper()
	for _, request := range requests {
		lock, err := c.b.Acquire(c.Context(), request)
		if !errors.Is(err, locks.ErrHeld) {
			c.Errorf("Acquire by %q, of slots %d, beside the open transaction: %v, want ErrHeld", request.Owner, request.Slots, err)
		}
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
}

func shareGuardPastEnd(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	for _, end := range []func(Transaction){c.rollback, c.commit} {
		share := c.share(c.b, "worker-1", 1)
		tx := c.begin(c.a)
		c.guard(tx, share.Grant())
		c.expireShare("worker-1")
		out := func() {
			c.Helper()
			c.wantOutBeside(c.asks("worker-2", 1), c.asks("worker-1", 1))
			c.wantExcluded(resource, nil)
			c.wantFree(resource)
			c.wantNoShares()
		}
		out()
		if purger, ok := c.b.(locks.Purger); ok {
			if _, err := purger.Purge(c.Context(), 10); err != nil {
				c.Errorf("Purge beside the open transaction: %v", err)
			}
			out()
		}
		_, err := c.b.Renew(c.Context(), share.Grant(), ttl)
		c.wantLost(err, share.Grant(), locks.ErrExpired)
		c.wantUsable(tx)
		end(tx)
		share = c.share(c.b, "worker-2", 1)
		c.release(c.b, share.Grant())
		lock := c.acquire(c.b, resource, "worker-3")
		c.release(c.b, lock.Grant())
	}
}

func shareGuardSlot(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	shares := c.fill(2, 3)
	tx := c.begin(c.a)
	c.guard(tx, shares[0].Grant())
	c.expireShare("worker-1")
	c.wantShared(shares[1])
	third := c.share(c.b, "worker-3", 3)
	c.wantOutBeside(c.asks("worker-4", 3), c.asks("worker-1", 3), c.request(resource, "worker-4"))
	c.wantShared(shares[1], third)
	if purger, ok := c.b.(locks.Purger); ok {
		if _, err := purger.Purge(c.Context(), 10); err != nil {
			c.Errorf("Purge beside the open transaction: %v", err)
		}
		c.wantOutBeside(c.asks("worker-4", 3))
	}
	c.release(c.b, third.Grant())
	third = c.share(c.b, "worker-4", 3)
	c.wantOutBeside(c.asks("worker-5", 3))
	c.commit(tx)
	c.wantShared(shares[1], third, c.share(c.b, "worker-1", 3))
}

func shareGuardReaders(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	readers := c.readers(2)
	tx := c.begin(c.a)
	c.guard(tx, readers[0].Grant())
	c.expireShare("worker-1")
	third := c.share(c.b, "worker-3", locks.Shared)
	c.release(c.b, readers[1].Grant())
	c.wantShared(third)
	c.wantOutBeside(c.request(resource, "worker-9"), c.asks("worker-1", locks.Shared))
	c.expireShare("worker-3")
	c.wantFree(resource)
	c.wantExcluded(resource, nil)
	c.commit(tx)
	lock := c.acquire(c.b, resource, "worker-9")
	c.wantStored(lock)
}

func shareGuardGone(c *check) {
	c.sharer(c.a)
	c.needsTransactions()
	readers := c.readers(4)
	lock := c.acquire(c.a, "a", "worker-1")
	readers[3] = c.share(c.b, "worker-4", locks.Shared)
	released, superseded := readers[0], readers[1]
	c.release(c.a, released.Grant())
	readers[1] = c.share(c.b, superseded.Owner, locks.Shared)
	c.expireShare("worker-3")
	gone := []struct {
		grant  locks.Grant
		reason error
	}{
		{released.Grant(), locks.ErrNotOwner}, // the group has it
		{superseded.Grant(), locks.ErrSuperseded},
		{readers[2].Grant(), locks.ErrExpired},
		{locks.Grant{Resource: resource, Owner: "worker-9", Token: readers[1].Token}, locks.ErrNotOwner},
		{locks.Grant{Resource: "a", Owner: "worker-2", Token: lock.Token}, locks.ErrNotOwner},
	}
	tx := c.begin(c.a)
	for _, g := range gone {
		for range 2 { // the first must not have changed the second's answer
			c.wantLost(tx.Guard(c.Context(), g.grant), g.grant, g.reason)
			c.wantUsable(tx)
		}
	}
	nothingLeft := func() {
		c.Helper()
		c.wantShared(readers[1], readers[3])
		c.release(c.b, readers[1].Grant())
		c.release(c.b, readers[3].Grant())
		c.acquire(c.b, resource, "worker-9")
	}
	if !c.h.OneWriter { // while the transaction is open
		nothingLeft()
	}
	c.commit(tx)
	if c.h.OneWriter {
		nothingLeft()
	}
}

func shareGuardSavepoint(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	readers := c.readers(3)
	tx := c.begin(c.a)
	savepoint := c.savepoint(tx)
	c.guard(savepoint, readers[0].Grant())
	c.rollback(savepoint)
	c.wantUsable(tx)
	savepoint = c.savepoint(tx)
	c.guard(savepoint, readers[1].Grant())
	c.commit(savepoint)
	c.release(c.b, readers[0].Grant())
	if err := c.b.Release(c.Context(), readers[1].Grant()); !errors.Is(err, locks.ErrGuarded) {
		c.Errorf("Release of a share that was guarded in a savepoint: %v, want ErrGuarded", err)
	}
	c.wantShared(readers[1], readers[2])
	c.commit(tx)
	c.release(c.b, readers[1].Grant())
	c.wantShared(readers[2])
}

func shareGuardTwice(c *check) {
	c.sharer(c.a)
	c.needsManyWriters()
	readers := c.readers(2)
	first, second := c.begin(c.a), c.begin(c.b)
	c.guard(first, readers[0].Grant())
	c.guard(second, readers[0].Grant())
	c.guard(second, readers[1].Grant())
	c.commit(first)
	for _, share := range readers {
		if err := c.b.Release(c.Context(), share.Grant()); !errors.Is(err, locks.ErrGuarded) {
			c.Errorf("Release of a share that another transaction still guards: %v, want ErrGuarded", err)
		}
	}
	c.wantShared(readers...)
	c.commit(second)
	c.release(c.b, readers[0].Grant())
	c.release(c.a, readers[1].Grant())
	c.wantRows(0)
}

func shareInTx(c *check) {
	c.needsTransactions()
	readers := c.readers(2)
	tx := c.begin(c.a)
	for _, slots := range []int{locks.Shared, 1, 2, -2, locks.MaxSlots + 1} {
		for _, name := range []string{resource, "free"} {
			request := c.asks("worker-1", slots)
			request.Resource = name
			lock, err := tx.Acquire(c.Context(), request)
			c.wantInvalid(err, "slots", "Acquire in a transaction with slots %d", slots)
			c.wantSame("the record beside the error", lock, locks.Lock{})
			c.wantUsable(tx)
		}
	}
	for _, share := range readers {
		if _, err := tx.Renew(c.Context(), share.Grant(), 2*ttl); !errors.Is(err, locks.ErrInvalid) {
			c.Errorf("Renew of a share in a transaction: %v, want ErrInvalid", err)
		}
		c.wantUsable(tx)
		if err := tx.Release(c.Context(), share.Grant()); !errors.Is(err, locks.ErrInvalid) {
			c.Errorf("Release of a share in a transaction: %v, want ErrInvalid", err)
		}
		c.wantUsable(tx)
	}
	c.wantShared(readers...)
	lock := c.acquireTx(tx, "invoice:2026-0043", "worker-1") // it goes on
	c.commit(tx)
	c.wantStored(lock)
	c.wantShared(readers...)
	c.wantFree("free")
	c.release(c.b, readers[0].Grant())
	c.release(c.a, readers[1].Grant())
}

func shareOfMany(c *check) {
	multi := c.multi(c.b)
	share := c.readers(1)[0]
	for _, slots := range []int{locks.Shared, 1, -2, locks.MaxSlots + 1} {
		requests := c.requests("worker-2", "beside it", "free")
		requests[1].Slots = slots
		got, err := multi.AcquireAll(c.Context(), requests)
		c.wantInvalid(err, "slots", "AcquireAll with slots %d", slots)
		if len(got) > 0 {
			c.Errorf("AcquireAll returned %+v beside its error", got)
		}
	}
	_, err := multi.AcquireAll(c.Context(), c.requests("worker-2", "beside it", resource))
	c.wantHeld(err, c.get(c.a, resource))
	c.wantFree("beside it")
	c.wantFree("free")
	c.wantShared(share)
}
