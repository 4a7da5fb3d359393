package lockstest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func tokenPromises() []promise {
	promises := []promise{
		{name: "tokens never repeat, whatever the resource", test: tokensDistinct},
		{name: "tokens grow in the order of the grants, one holder at a time, under contention", stores: 4, test: tokensInOrder},
	}
	for _, way := range []struct {
		name string
		end  func(c *check, lock locks.Lock, attempt string)
	}{
		{"a release", func(c *check, lock locks.Lock, _ string) { c.release(c.b, lock.Grant()) }},
		{"a release by attempt", func(c *check, lock locks.Lock, attempt string) {
			if err := c.b.ReleaseAttempt(c.Context(), lock.Resource, lock.Owner, attempt); err != nil {
				c.Fatalf("ReleaseAttempt: %v", err)
			}
		}},
		{"a takeover", func(c *check, lock locks.Lock, _ string) { c.expire(lock.Resource) }},
		{"a new attempt", func(c *check, _ locks.Lock, _ string) {}},
		{"renewals", func(c *check, lock locks.Lock, _ string) { c.renew(c.b, lock.Grant(), 2*ttl) }},
		{"a purge", func(c *check, lock locks.Lock, _ string) { c.expire(lock.Resource); c.purge(c.b, 10, 1) }},
		{"a forced release", func(c *check, lock locks.Lock, _ string) { c.forceRelease(c.b, lock) }},
		{"a row deleted by hand", func(c *check, lock locks.Lock, _ string) { c.deleteRow(lock.Resource) }},
		{"a table emptied by hand", func(c *check, _ locks.Lock, _ string) {
			if c.h.Truncate == nil {
				c.Skip("not tested: a table emptied by hand (the harness has no Truncate)")
			}
			c.h.Truncate(c.TB, c.b)
		}},
	} {
		promises = append(promises, promise{name: "tokens grow through " + way.name, test: func(c *check) {
			var last int64
			for i := range 4 {
				request := c.request(resource, "worker-1")
				lock := c.grant(c.stores[i%2], request)
				if lock.Token <= last {
					c.Errorf("token %d after %d, want a larger one", lock.Token, last)
				}
				last = lock.Token
				way.end(c, lock, request.Attempt)
			}
		}})
	}
	return promises
}

func tokensDistinct(c *check) {
	seen := map[int64]string{}
	for i := range 30 {
		name := fmt.Sprintf("invoice:%d", i%4)
		lock := c.acquire(c.stores[i%2], name, "worker-1")
		if other, again := seen[lock.Token]; again {
			c.Errorf("token %d was granted for %s and for %s", lock.Token, other, name)
		}
		seen[lock.Token] = name
		switch i % 3 {
		case 0:
			c.release(c.a, lock.Grant())
		case 1:
			c.expire(name)
		}
	}
}

// tokensInOrder lets contenders acquire and release a few resources. While one holds a resource nobody else may, so
// that the order in which holders write down their tokens is the order of the grants.
func tokensInOrder(c *check) {
	const resources, grants = 3, 25
	type guarded struct {
		name    string
		holders atomic.Int32
		mu      sync.Mutex
		tokens  []int64
	}
	var all [resources]guarded
	for i := range all {
		all[i].name = fmt.Sprintf("invoice:%d", i)
	}
	enough := func(g *guarded) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.tokens) >= grants
	}
	deadline := time.Now().Add(2 * c.patience)
	answers := c.atOnce(3*len(c.stores), func(i int, store locks.Store) (locks.Lock, error) {
		g := &all[i%resources]
		for try := 0; !enough(g) && !c.Failed(); try++ {
			if time.Now().After(deadline) {
				return locks.Lock{}, fmt.Errorf("%s: fewer than %d grants in %v", g.name, grants, 2*c.patience)
			}
			lock, err := store.Acquire(c.Context(), locks.Request{
				Resource: g.name, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("attempt-%d", try), TTL: ttl,
			})
			switch {
			case errors.Is(err, locks.ErrHeld), errors.Is(err, locks.ErrBusy):
				time.Sleep(time.Duration(i%5) * 200 * time.Microsecond) // out of step with the others
				continue
			case err != nil:
				return locks.Lock{}, fmt.Errorf("Acquire: %w", err)
			}
			if n := g.holders.Add(1); n != 1 {
				c.Errorf("%s: %d holders at once", g.name, n)
			}
			g.mu.Lock()
			g.tokens = append(g.tokens, lock.Token)
			g.mu.Unlock()
			g.holders.Add(-1)
			for err = store.Release(c.Context(), lock.Grant()); errors.Is(err, locks.ErrBusy); {
				err = store.Release(c.Context(), lock.Grant())
			}
			if err != nil {
				return locks.Lock{}, fmt.Errorf("Release: %w", err)
			}
		}
		return locks.Lock{}, nil
	})
	for _, a := range answers {
		if a.err != nil {
			c.Error(a.err)
		}
	}
	seen := map[int64]bool{}
	for i := range all {
		for j, token := range all[i].tokens {
			if seen[token] {
				c.Errorf("%s: token %d was granted twice", all[i].name, token)
			}
			if j > 0 && token <= all[i].tokens[j-1] {
				c.Errorf("%s: token %d was granted after %d", all[i].name, token, all[i].tokens[j-1])
			}
			seen[token] = true
		}
	}
}
