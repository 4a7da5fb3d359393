package lockstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func shareContentionPromises() []promise {
	return []promise{
		{name: "of many at once as many get in as there are slots", stores: 4, test: contendSlots},
		{name: "of many at once who ask for other slots only one kind gets in", stores: 4, test: contendKinds},
		{name: "never are more in at once than there are slots", stores: 4, test: contendCount},
		{name: "never is anybody beside who holds it alone", stores: 4, test: contendMixed},
		{name: "who waits gets in, readers and writers alike", stores: 4, test: contendWaiting},
		{name: "an owner's attempts at once have one share", stores: 4, test: contendShare},
		{name: "shares released at once are each released once", stores: 4, test: contendLast},
	}
}

func contendSlots(c *check) {
	c.sharer(c.a)
	for round := range 3 {
		slots := round + 1
		var in []locks.Lock
		for _, a := range c.atOnce(12, func(i int, store locks.Store) (lock locks.Lock, err error) {
			request := locks.Request{Resource: resource, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("round-%d", round), TTL: ttl, Slots: slots}
			for range 100 { // it is refused as held while another one is just getting in
				if lock, err = store.Acquire(c.Context(), request); err == nil || known(err) {
					break
				}
			}
			return lock, err
		}) {
			switch {
			case a.err == nil:
				in = append(in, a.lock)
			case !errors.Is(a.err, locks.ErrHeld):
				c.Errorf("err = %v, want a share, or ErrHeld", a.err)
			}
		}
		if len(in) == 0 || len(in) > slots {
			c.Fatalf("%d got in, want %d", len(in), slots)
		}
		for i := len(in); i < slots; i++ {
			in = append(in, c.share(c.a, fmt.Sprintf("late-%d", i), slots))
		}
		c.wantShared(in...)
		for _, lock := range in {
			c.release(c.b, lock.Grant())
		}
		c.wantRows(0)
	}
}

// known reports whether an acquire was refused for a holder that is there, not for a call that is just running.
func known(err error) bool {
	var held *locks.HeldError
	return errors.As(err, &held) && held.Holder != nil
}

func contendKinds(c *check) {
	c.sharer(c.a)
	kinds := []int{0, locks.Shared, 2, 3}
	for round := range 6 {
		granted := map[int][]locks.Lock{}
		for i, a := range c.atOnce(16, func(i int, store locks.Store) (locks.Lock, error) {
			return store.Acquire(c.Context(), locks.Request{
				Resource: resource, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("round-%d", round), TTL: ttl, Slots: kinds[i%4],
			})
		}) {
			switch slots := kinds[i%4]; {
			case a.err == nil:
				granted[slots] = append(granted[slots], a.lock)
			case !errors.Is(a.err, locks.ErrHeld) && !errors.Is(a.err, locks.ErrSlots):
				c.Errorf("err = %v, want a share, ErrHeld or ErrSlots", a.err)
			}
		}
		if len(granted) != 1 || len(granted[0]) > 1 {
			c.Fatalf("granted at once, by slots: %+v, want one kind", granted)
		}
		for slots, in := range granted {
			if slots == 0 {
				c.wantStored(in[0])
			} else {
				c.wantShared(in...)
			}
			for _, lock := range in {
				c.release(c.b, lock.Grant())
			}
		}
		c.wantRows(0)
	}
}

// room counts who is in, readers and writers.
type room struct{ shares, alone atomic.Int32 }

// enter counts one in, and says whether that is one too many.
func (r *room) enter(slots int) error {
	if slots == 0 {
		if alone, shares := r.alone.Add(1), r.shares.Load(); alone > 1 || shares > 0 {
			return fmt.Errorf("one is in alone beside %d others and %d shares", alone-1, shares)
		}
		return nil
	}
	if shares, alone := r.shares.Add(1), r.alone.Load(); alone > 0 || slots > 0 && int(shares) > slots {
		return fmt.Errorf("%d shares of %d are in, and %d alone", shares, slots, alone)
	}
	return nil
}

func (r *room) leave(slots int) {
	if slots == 0 {
		r.alone.Add(-1)
	} else {
		r.shares.Add(-1)
	}
}

// visit lets n come again and again at once, until each was in so many times, and asks for the slots of each visit. Acquire gets in.
func (c *check) visit(n, rounds int, slots func(visit int) int, acquire func(store locks.Store, request locks.Request) (locks.Lock, error)) {
	c.Helper()
	var in room
	for i, a := range c.atOnce(n, func(i int, store locks.Store) (locks.Lock, error) {
		for round := range rounds {
			request := locks.Request{
				Resource: resource, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("round-%d", round), TTL: ttl, Slots: slots(i + round),
			}
			lock, err := acquire(store, request)
			if err != nil {
				return lock, err
			}
			if err := in.enter(request.Slots); err != nil {
				return lock, err
			}
			time.Sleep(rand.N(500 * time.Microsecond)) // lets others come
			in.leave(request.Slots)
			if err := freeing(c.Context(), store, lock); err != nil {
				return lock, err
			}
			time.Sleep(rand.N(500 * time.Microsecond)) // lets others in first
		}
		return locks.Lock{}, nil
	}) {
		if a.err != nil {
			c.Errorf("the one number %d: %+v, %v", i, a.lock, a.err)
		}
	}
	if !c.Failed() {
		c.wantFree(resource)
		c.wantNoShares()
		c.wantNobodyWaits(resource)
		c.wantRows(0)
	}
}

// trying acquires by trying again and again, until the test's patience ends.
func (c *check) trying(store locks.Store, request locks.Request) (locks.Lock, error) {
	for began := time.Now(); ; time.Sleep(rand.N(500 * time.Microsecond)) {
		lock, err := store.Acquire(c.Context(), request)
		if !errors.Is(err, locks.ErrHeld) && !errors.Is(err, locks.ErrBusy) || time.Since(began) > c.patience {
			return lock, err
		}
	}
}

func contendCount(c *check) {
	c.sharer(c.a)
	c.visit(10, 3, func(int) int { return 3 }, c.trying)
}

func contendMixed(c *check) {
	c.sharer(c.a)
	c.visit(9, 3, mixed, c.trying)
}

// mixed is everybody a writer now and then: readers alone would leave writers no gap.
func mixed(visit int) int {
	if visit%3 == 0 {
		return 0
	}
	return locks.Shared
}

func contendWaiting(c *check) {
	c.sharer(c.a)
	c.queuer(c.a)
	ctx, cancel := context.WithTimeout(c.Context(), c.patience)
	defer cancel()
	c.visit(9, 2, mixed, func(store locks.Store, request locks.Request) (locks.Lock, error) {
		return locks.Wait(ctx, store, request, locks.WaitOptions{Background: func(fn func()) { fn() }},
			func(ctx context.Context) (locks.Lock, error) { return store.Acquire(ctx, request) })
	})
}

func contendShare(c *check) {
	neighbour := c.readers(1)[0]
	var newest locks.Lock
	tokens := map[int64]bool{}
	for _, a := range c.atOnce(12, func(i int, store locks.Store) (locks.Lock, error) {
		return store.Acquire(c.Context(), locks.Request{
			Resource: resource, Owner: "worker-9", Attempt: fmt.Sprintf("attempt-%d", i/2), TTL: ttl, Slots: locks.Shared,
		})
	}) {
		switch {
		case a.err == nil:
			tokens[a.lock.Token] = true
			if newest.Token < a.lock.Token {
				newest = a.lock
			}
		case !errors.Is(a.err, locks.ErrHeld): // another attempt was just being granted
			c.Errorf("err = %v, want a share, or ErrHeld", a.err)
		}
	}
	if len(tokens) == 0 {
		c.Fatal("no attempt was granted")
	}
	c.wantShared(neighbour, newest)
}

func contendLast(c *check) {
	c.sharer(c.a)
	for range 4 {
		shares := c.fill(4, 4)
		released := 0
		for _, a := range c.atOnce(8, func(i int, store locks.Store) (locks.Lock, error) {
			return locks.Lock{}, freeing(c.Context(), store, shares[i/2])
		}) {
			switch {
			case a.err == nil:
				released++
			case !errors.Is(a.err, locks.ErrLost):
				c.Errorf("a release of many at once: %v, want ErrLost", a.err)
			}
		}
		if released != len(shares) {
			c.Errorf("%d shares were released, want %d", released, len(shares))
		}
		c.wantFree(resource)
		c.wantNoShares()
		c.wantRows(0)
	}
}
