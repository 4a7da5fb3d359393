package lockstest

import (
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func purgePromises() []promise {
	return []promise{
		{name: "purge deletes ended rows only, at most its limit, and counts them", test: purgeEnded},
		{name: "a purged resource's next grant has a new id and a larger token", test: purgeNext},
		{name: "purge spares a lease that is being taken over", stores: 4, test: purgeRace},
	}
}

// purger returns the store's ability to purge, or skips the test.
func (c *check) purger(store locks.Store) locks.Purger {
	c.Helper()
	purger, ok := store.(locks.Purger)
	if !ok {
		c.Skipf("not tested: purging (%T is no locks.Purger)", store)
	}
	return purger
}

// purge must delete this many rows.
func (c *check) purge(store locks.Store, limit, want int) {
	c.Helper()
	if n, err := c.purger(store).Purge(c.Context(), limit); err != nil || n != want {
		c.Errorf("Purge(%d) = %d, %v, want %d", limit, n, err, want)
	}
}

func purgeEnded(c *check) {
	c.purge(c.a, 100, 0)
	var live []locks.Lock
	for i := range 12 {
		name := fmt.Sprintf("invoice:%d", i)
		lock := c.acquire(c.stores[i%2], name, "worker-1")
		if i%3 == 0 {
			live = append(live, lock)
		} else {
			c.expire(name)
		}
	}
	left := 12
	for _, batch := range []struct{ limit, want int }{{3, 3}, {1, 1}, {100, 4}, {100, 0}} {
		c.purge(c.stores[batch.limit%2], batch.limit, batch.want)
		left -= batch.want
		c.wantRows(left)
	}
	for _, lock := range live {
		c.wantStored(lock)
		c.release(c.b, c.renew(c.a, lock.Grant(), ttl).Grant())
	}
}

func purgeNext(c *check) {
	first := c.acquire(c.a, resource, "worker-1")
	c.expire(resource)
	c.purge(c.b, 1, 1)
	next := c.acquire(c.a, resource, "worker-1")
	if next.ID == first.ID || next.Token <= first.Token {
		c.Errorf("id %d, token %d after id %d, token %d, want a new id and a larger token", next.ID, next.Token, first.ID, first.Token)
	}
	c.purge(c.b, 1, 0)
	c.wantStored(next)
}

// purgeRace purges while ended leases are taken over, in both orders.
func purgeRace(c *check) {
	c.purger(c.a)
	for round := range 8 {
		names := make([]string, 3)
		for i := range names {
			names[i] = fmt.Sprintf("invoice:%d:%d", round, i)
			c.acquire(c.a, names[i], "worker-1")
			c.expire(names[i])
		}
		answers := c.atOnce(2*len(names), func(i int, store locks.Store) (locks.Lock, error) {
			if i%2 == 1 {
				time.Sleep(time.Duration(round%4) * 100 * time.Microsecond)
				_, err := store.(locks.Purger).Purge(c.Context(), 10)
				return locks.Lock{}, err
			}
			return store.Acquire(c.Context(), locks.Request{Resource: names[i/2], Owner: "worker-2", Attempt: "takeover", TTL: ttl})
		})
		for i, a := range answers {
			switch {
			case i%2 == 1:
				if a.err != nil {
					c.Errorf("Purge beside takeovers: %v", a.err)
				}
			case errors.Is(a.err, locks.ErrHeld): // refused, since the purge was just changing the row
			case a.err != nil:
				c.Errorf("takeover beside a purge: %v", a.err)
			default:
				c.wantSame("Get", c.get(c.b, a.lock.Resource), a.lock)
				c.release(c.a, a.lock.Grant())
			}
		}
	}
}
