package lockstest

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

func contentionPromises() []promise {
	return []promise{
		{name: "one free resource has one winner, and the others are told that it is held", stores: 5, test: contendFree},
		{name: "one ended lease has one taker", stores: 4, test: contendEnded},
		{name: "as many resources as contenders are all granted", stores: 4, test: contendApart},
		{name: "an owner's attempts at once are grants one after another", stores: 4, test: contendOwner},
		{name: "a holder renews undisturbed while others try", stores: 4, test: contendRenew},
		{name: "releases at once free the grant once", stores: 4, test: contendRelease},
		{name: "late calls beside a new holder do not harm it", stores: 4, test: contendLate},
	}
}

func contendFree(c *check) {
	for round := range 3 {
		name := fmt.Sprintf("invoice:%d", round)
		won := c.wantOneWinner(c.atOnce(50, func(i int, store locks.Store) (locks.Lock, error) {
			return store.Acquire(c.Context(), locks.Request{Resource: name, Owner: fmt.Sprintf("worker-%d", i), Attempt: "first", TTL: ttl})
		}), locks.ErrHeld)
		c.wantStored(won)
	}
	c.wantRows(3)
}

func contendEnded(c *check) {
	for round := range 5 {
		name := fmt.Sprintf("invoice:%d", round)
		first := c.acquire(c.a, name, "worker-0")
		c.expire(name)
		won := c.wantOneWinner(c.atOnce(12, func(i int, store locks.Store) (locks.Lock, error) {
			return store.Acquire(c.Context(), locks.Request{Resource: name, Owner: fmt.Sprintf("worker-%d", i), Attempt: "takeover", TTL: ttl})
		}), locks.ErrHeld)
		if won.ID != first.ID || won.Token <= first.Token {
			c.Errorf("taken over with id %d, token %d from id %d, token %d", won.ID, won.Token, first.ID, first.Token)
		}
		c.wantStored(won)
	}
}

func contendApart(c *check) {
	ids, tokens := map[int64]bool{}, map[int64]bool{}
	for round := range 2 {
		for i, a := range c.atOnce(24, func(i int, store locks.Store) (locks.Lock, error) {
			return store.Acquire(c.Context(), locks.Request{
				Resource: fmt.Sprintf("invoice:%d:%d", round, i), Owner: "worker-1", Attempt: "first", TTL: ttl,
			})
		}) {
			if a.err != nil {
				c.Errorf("acquire of a free resource beside others: %v", a.err)
				continue
			}
			if want := fmt.Sprintf("invoice:%d:%d", round, i); a.lock.Resource != want {
				c.Errorf("granted %q, want %q", a.lock.Resource, want)
			}
			if ids[a.lock.ID] || tokens[a.lock.Token] {
				c.Errorf("id %d or token %d was granted twice", a.lock.ID, a.lock.Token)
			}
			ids[a.lock.ID], tokens[a.lock.Token] = true, true
		}
	}
	c.wantRows(48)
}

func contendOwner(c *check) {
	answers := c.atOnce(12, func(i int, store locks.Store) (locks.Lock, error) {
		return store.Acquire(c.Context(), locks.Request{Resource: resource, Owner: "worker-1", Attempt: fmt.Sprintf("attempt-%d", i), TTL: ttl})
	})
	tokens := map[int64]bool{}
	var newest locks.Lock
	for _, a := range answers {
		switch {
		case errors.Is(a.err, locks.ErrHeld): // another attempt was just being granted
		case a.err != nil:
			c.Errorf("err = %v, want a grant, or ErrHeld", a.err)
		case tokens[a.lock.Token]:
			c.Errorf("token %d was granted to two attempts", a.lock.Token)
		default:
			tokens[a.lock.Token] = true
			if newest.Token < a.lock.Token {
				newest = a.lock
			}
		}
	}
	if len(tokens) == 0 {
		c.Fatal("no attempt was granted")
	}
	c.wantStored(newest)
	for _, a := range answers {
		if a.err == nil && a.lock.Token != newest.Token {
			c.wantLost(c.b.Release(c.Context(), a.lock.Grant()), a.lock.Grant(), locks.ErrSuperseded)
		}
	}
	c.wantStored(newest)
	c.wantRows(1)
}

func contendRenew(c *check) {
	holder := c.acquire(c.a, resource, "worker-0")
	for i, a := range c.atOnce(8, func(i int, store locks.Store) (lock locks.Lock, err error) {
		for n := range 15 {
			if i == 0 {
				lock, err = store.Renew(c.Context(), holder.Grant(), ttl)
				if err != nil {
					return lock, err
				}
				continue
			}
			lock, err = store.Acquire(c.Context(), locks.Request{
				Resource: resource, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("attempt-%d", n), TTL: ttl,
			})
			if !errors.Is(err, locks.ErrHeld) {
				return lock, err
			}
		}
		return lock, err
	}) {
		if i == 0 && a.err != nil {
			c.Errorf("the holder's renewal: %v", a.err)
		}
		if i > 0 && !errors.Is(a.err, locks.ErrHeld) {
			c.Errorf("a try beside the holder's renewals: %+v, %v, want ErrHeld", a.lock, a.err)
		}
	}
	if got := c.get(c.b, resource); got.Token != holder.Token || !got.AcquiredAt.Equal(holder.AcquiredAt) {
		c.Errorf("held by %+v, want the grant %+v", got, holder)
	}
}

func contendRelease(c *check) {
	for round := range 4 {
		request := c.request(resource, "worker-1")
		lock := c.grant(c.a, request)
		c.wantOneWinner(c.atOnce(8, func(i int, store locks.Store) (locks.Lock, error) {
			if round%2 == 1 && i%2 == 1 {
				return locks.Lock{}, store.ReleaseAttempt(c.Context(), resource, "worker-1", request.Attempt)
			}
			return locks.Lock{}, store.Release(c.Context(), lock.Grant())
		}), locks.ErrNotHeld)
		c.wantFree(resource)
		c.wantRows(0)
	}
}

// contendLate lets the calls of an ended grant run beside the acquire of the next holder.
func contendLate(c *check) {
	for round := range 6 {
		name := fmt.Sprintf("invoice:%d", round)
		late := c.acquire(c.a, name, "worker-1").Grant()
		c.expire(name)
		answers := c.atOnce(5, func(i int, store locks.Store) (locks.Lock, error) {
			switch i {
			case 0:
				return store.Acquire(c.Context(), locks.Request{Resource: name, Owner: "worker-2", Attempt: "takeover", TTL: ttl})
			case 1, 2:
				return store.Renew(c.Context(), late, ttl)
			default:
				return locks.Lock{}, store.Release(c.Context(), late)
			}
		})
		for _, a := range answers[1:] {
			if !errors.Is(a.err, locks.ErrLost) {
				c.Errorf("a late call: %+v, %v, want ErrLost", a.lock, a.err)
			}
		}
		switch won := answers[0]; {
		case won.err == nil:
			c.wantStored(won.lock)
		case errors.Is(won.err, locks.ErrHeld): // refused, since a late release was just removing the ended row
			c.acquire(c.b, name, "worker-2")
		default:
			c.Errorf("the takeover: %v", won.err)
		}
	}
}
