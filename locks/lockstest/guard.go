package lockstest

import (
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func guardPromises() []promise {
	return []promise{
		{name: "nobody else is granted the resource until the transaction ends", test: guardExcludes},
		{name: "nor past the lease's end, renewed, released or guarded", test: guardPastEnd},
		{name: "the holder's renewals go on", test: guardRenew},
		{name: "releases by anybody are refused as guarded until the transaction ends", stores: 3, test: guardReleases},
		{name: "a grant that is not current is refused, and nothing is left behind", test: refusesGone(guardCall)},
		{name: "a savepoint's rollback ends the guards taken in it, and its release does not", test: guardSavepoint},
		{name: "the guarding transaction does not acquire what it guards", test: guardAcquire},
		{name: "what a transaction acquired it guards, and what it guards it renews and releases", test: guardOwn},
		{name: "two transactions guard one grant", test: guardTwice},
		{name: "no guard passes beside a forced release and a new grant", stores: 4, test: guardRace},
	}
}

func guardCall(c *check, tx Transaction, grant locks.Grant) error {
	return tx.Guard(c.Context(), grant)
}

func guardExcludes(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	other := c.acquire(c.b, "invoice:2026-0043", "worker-1")
	for _, end := range []func(Transaction){c.rollback, c.commit} {
		tx := c.begin(c.a)
		c.guard(tx, lock.Grant())
		c.guard(tx, lock.Grant()) // again is as once
		c.wantExcluded(resource, &lock)
		c.wantUsable(tx)
		c.wantStored(lock)
		end(tx)
		c.wantStored(lock)
		next := c.acquire(c.b, resource, "worker-1")
		if next.ID != lock.ID || next.Token <= lock.Token {
			c.Errorf("id %d, token %d after id %d, token %d, want the same id and a larger token", next.ID, next.Token, lock.ID, lock.Token)
		}
		lock = next
	}
	c.wantStored(other)
	c.wantRows(2)
}

// guardPastEnd waits for the end of short leases by their own time: the row of a lease that is renewed in a transaction
// is locked for the back door too.
func guardPastEnd(c *check) {
	c.needsTransactions()
	var tx Transaction
	var granted [3]locks.Lock
	var renewed locks.Lock
	for short := locks.MinTTL; ; short *= 2 { // on a busy machine a lease may end before it is guarded
		for i, name := range []string{"renewed", "released", "guarded"} {
			request := c.request(name, "worker-1")
			request.TTL = short
			granted[i] = c.grant(c.b, request)
		}
		tx = c.begin(c.a)
		var err error
		if renewed, err = tx.Renew(c.Context(), granted[0].Grant(), ttl); err == nil {
			if err = tx.Release(c.Context(), granted[1].Grant()); err == nil {
				err = tx.Guard(c.Context(), granted[2].Grant())
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, locks.ErrExpired) || short > time.Minute {
			c.Fatalf("a lease of %v in a transaction: %v", short, err)
		}
		c.rollback(tx)
	}
	for _, lock := range granted {
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := c.b.Get(c.Context(), lock.Resource); errors.Is(err, locks.ErrNotFound) {
				break
			}
			if time.Since(began) > c.patience+lock.ExpiresAt.Sub(lock.AcquiredAt) {
				c.Fatalf("%q has not ended", lock.Resource)
			}
		}
		c.wantExcluded(lock.Resource, nil)
	}
	if purger, ok := c.b.(locks.Purger); ok && !c.h.OneWriter {
		if _, err := purger.Purge(c.Context(), 10); err != nil {
			c.Errorf("Purge beside the open transaction: %v", err)
		}
		for _, lock := range granted {
			c.wantExcluded(lock.Resource, nil)
		}
	}
	c.wantUsable(tx)
	c.commit(tx)
	c.wantStored(renewed)
	c.wantFree("released")
	c.acquire(c.b, "released", "worker-2")
	c.acquire(c.b, "guarded", "worker-2")
	_, err := c.b.Acquire(c.Context(), c.request("renewed", "worker-2"))
	c.wantHeld(err, renewed)
}

func guardRenew(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	tx := c.begin(c.a)
	c.guard(tx, lock.Grant())
	if c.h.OneWriter {
		if _, err := c.b.Renew(c.Context(), lock.Grant(), 2*ttl); !errors.Is(err, locks.ErrBusy) || errors.Is(err, locks.ErrLost) {
			c.Errorf("the holder's renewal beside the engine's one writer: %v, want ErrBusy", err)
		}
	} else {
		for _, renewal := range []time.Duration{2 * ttl, ttl / 2} {
			lock = c.renew(c.b, lock.Grant(), renewal)
			c.wantStored(lock)
			c.wantExcluded(resource, &lock)
		}
		c.guard(tx, lock.Grant())
	}
	c.commit(tx)
	c.wantStored(lock)
	c.renew(c.b, lock.Grant(), ttl)
}

// guardReleases asks for all releases at once: each waits for a limit.
func guardReleases(c *check) {
	c.needsTransactions()
	request := c.request(resource, "worker-1")
	lock := c.grant(c.b, request)
	other := c.acquire(c.b, "invoice:2026-0043", "worker-1")
	tx := c.begin(c.a)
	c.guard(tx, lock.Grant())
	c.guard(tx, other.Grant())
	calls := map[string]func() error{
		"Release":        func() error { return c.b.Release(c.Context(), lock.Grant()) },
		"ReleaseAttempt": func() error { return c.b.ReleaseAttempt(c.Context(), resource, "worker-1", request.Attempt) },
	}
	forcer, canForce := c.b.(locks.ForceReleaser)
	if canForce {
		calls["ForceRelease"] = func() error {
			_, err := forcer.ForceRelease(c.Context(), other.Resource, other.Token)
			return err
		}
	}
	want := locks.ErrBusy
	var beside Transaction
	if !c.h.OneWriter {
		want = locks.ErrGuarded
		beside = c.begin(c.stores[2])
		calls["Release in another transaction"] = func() error { return beside.Release(c.Context(), other.Grant()) }
	}
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	for i, a := range c.atOnce(len(names), func(i int, _ locks.Store) (locks.Lock, error) { return locks.Lock{}, calls[names[i]]() }) {
		if !errors.Is(a.err, want) || errors.Is(a.err, locks.ErrLost) {
			c.Errorf("%s of a guarded lease: %v, want: %v", names[i], a.err, want)
		}
	}
	c.wantStored(lock)
	c.wantStored(other)
	if beside != nil {
		c.wantUsable(beside)
		c.commit(beside)
		c.wantExcluded(resource, &lock)
	}
	c.wantUsable(tx)
	c.commit(tx)
	c.release(c.b, lock.Grant())
	if canForce {
		c.forceRelease(c.b, other)
	} else {
		c.release(c.b, other.Grant())
	}
	c.wantRows(0)
}
