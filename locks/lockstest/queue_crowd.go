package lockstest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func crowdPromises() []promise {
	return []promise{
		{name: "all who wait are told: how many they are, and the first ones in their order", test: crowdWaiters},
		{name: "limits out of rule are refused, and 0 counts only", test: crowdLimits},
		{name: "no more wait than may, and who is refused leaves nothing", test: crowdMost},
		{name: "no more wait than may, of many at once too", stores: 4, test: crowdMostAtOnce},
		{name: "numbers grow with the order of coming, whichever store they ask", test: crowdNumbers},
		{name: "nobody comes before whom has been seen in the queue", stores: 4, test: crowdSeen},
		{name: "an enqueue that is given up leaves no ticket for long", test: crowdGivenUp},
		{name: "all who wait get in, once each, in the order of their numbers", stores: 4, test: crowdAll},
		{name: "nobody is forgotten where some come while others release", stores: 4, test: crowdRounds},
	}
}

// untilWaiting waits until so many wait.
func (c *check) untilWaiting(want int) {
	c.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		waiting := c.queue(c.b, resource, 0).Waiting
		if waiting == want {
			return
		}
		if time.Since(began) > c.patience {
			c.Fatalf("%d wait for %q after %v, want %d", waiting, resource, c.patience, want)
		}
	}
}

func crowdWaiters(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.a, resource, "worker-0")
	c.wantQueue(resource)
	var waiters []*waiter
	for i := range 5 {
		waiters = append(waiters, c.wait(c.stores[i%2], resource, fmt.Sprintf("worker-%d", 9-i)))
		c.wantQueue(resource, waiters...)
	}
	for limit, want := range map[int]int{1: 1, 3: 3, 5: 5, 6: 5, locks.MaxListWaiters: 5} {
		queue := c.queue(c.b, resource, limit)
		if queue.Waiting != 5 || len(queue.Waiters) != want {
			c.Fatalf("Waiters with limit %d: %d wait, %d returned, want 5 and %d", limit, queue.Waiting, len(queue.Waiters), want)
		}
		for i, got := range queue.Waiters {
			switch {
			case got.Number != waiters[i].place.Waiter().Number:
				c.Errorf("Waiters with limit %d: number %d is %+v, want %+v", limit, i, got, waiters[i].place.Waiter())
			case got.Since.Before(holder.AcquiredAt) || i > 0 && got.Since.Before(queue.Waiters[i-1].Since) || !got.ExpiresAt.After(got.Since):
				c.Errorf("Waiters: %+v, drawn after the grant at %v, and %+v", got, holder.AcquiredAt, queue.Waiters)
			case got.Since.Location() != time.UTC || got.ExpiresAt.Location() != time.UTC:
				c.Errorf("Waiters: %+v, want its times in UTC", got)
			}
		}
	}
}

func crowdLimits(c *check) {
	w := c.wait(c.a, resource, "worker-1")
	for _, store := range []locks.Store{c.a, c.b} {
		if queue := c.queue(store, resource, 0); queue.Waiting != 1 || len(queue.Waiters) != 0 {
			c.Errorf("Waiters with limit 0: %+v, want 1 and none", queue)
		}
		for _, limit := range []int{-1, math.MinInt, locks.MaxListWaiters + 1, math.MaxInt} {
			queue, err := c.queuer(store).Waiters(c.Context(), resource, limit)
			c.wantInvalid(err, "limit", "Waiters with limit %d", limit)
			if queue.Waiting != 0 || len(queue.Waiters) > 0 {
				c.Errorf("Waiters with limit %d returned %+v beside its error", limit, queue)
			}
		}
	}
	c.wantQueue(resource, w)
}

// wantFull says that the request is refused a place where so many may wait.
func (c *check) wantFull(store locks.Store, request locks.Request, most int) {
	c.Helper()
	place, err := c.queuer(store).Enqueue(c.Context(), request, most)
	if !errors.Is(err, locks.ErrQueueFull) || !errors.Is(err, locks.ErrHeld) {
		c.Errorf("Enqueue where %d may wait: %v, want ErrQueueFull, which is ErrHeld", most, err)
	}
	if err == nil {
		c.leave(c.placed(store, request, place))
	}
}

// enqueueAmong must give the request a place where so many may wait.
func (c *check) enqueueAmong(store locks.Store, request locks.Request, most int) *waiter {
	c.Helper()
	place, err := c.queuer(store).Enqueue(c.Context(), request, most)
	if err != nil {
		c.Fatalf("Enqueue where %d may wait: %v", most, err)
	}
	return c.placed(store, request, place)
}

func crowdMost(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.a, resource, "worker-0")
	elsewhere := c.wait(c.a, "invoice:2026-0043", "worker-1")
	first := c.enqueueAmong(c.a, c.request(resource, "worker-1"), 2)
	second := c.enqueueAmong(c.b, c.request(resource, "worker-2"), 2)
	refused := c.request(resource, "worker-3")
	for _, store := range []locks.Store{c.a, c.b} {
		c.wantFull(store, refused, 2)
		c.wantFull(store, refused, 1)
		c.wantQueue(resource, first, second)
		again := c.enqueueAmong(store, second.request, 2) // has its place
		if got := again.place.Waiter().Number; got != second.place.Waiter().Number {
			c.Errorf("enqueued again with number %d, want %d", got, second.place.Waiter().Number)
		}
	}
	third := c.enqueueAmong(c.b, refused, 3)
	c.wantQueue(resource, first, second, third)
	c.leave(third)
	c.release(c.a, holder.Grant())
	c.serve(first)
	fourth := c.enqueueAmong(c.a, c.request(resource, "worker-4"), 2)
	c.wantFull(c.b, refused, 2)
	fifth := c.enqueue(c.b, refused)
	c.wantQueue(resource, second, fourth, fifth)
	c.wantQueue("invoice:2026-0043", elsewhere)
}

func crowdMostAtOnce(c *check) {
	c.queuer(c.a)
	const most = 5
	for round := range 3 {
		name := fmt.Sprintf("invoice:%d", round)
		var mu sync.Mutex
		var in []*waiter
		for _, a := range c.atOnce(24, func(i int, store locks.Store) (locks.Lock, error) {
			request := locks.Request{Resource: name, Owner: fmt.Sprintf("worker-%d", i), Attempt: "first", TTL: ttl}
			place, err := store.(locks.Queuer).Enqueue(c.Context(), request, most)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				in = append(in, c.placed(store, request, place))
			}
			return locks.Lock{}, err
		}) {
			if a.err != nil && !errors.Is(a.err, locks.ErrQueueFull) {
				c.Errorf("Enqueue where %d may wait: %v, want a place or ErrQueueFull", most, a.err)
			}
		}
		if len(in) != most {
			c.Errorf("%d of 24 at once are given a place, want %d", len(in), most)
		}
		slices.SortFunc(in, func(v, w *waiter) int { return int(v.place.Waiter().Number - w.place.Waiter().Number) })
		c.wantQueue(name, in...)
	}
}

func crowdNumbers(c *check) {
	var last int64
	for i := range 12 {
		w := c.wait(c.stores[i%2], resource, fmt.Sprintf("worker-%d", i))
		number := w.place.Waiter().Number
		if number <= last {
			c.Errorf("number %d was drawn after %d", number, last)
		}
		last = number
		switch i % 3 { // however the one before has gone
		case 0:
			c.leave(w)
		case 1:
			c.release(c.b, c.serve(w).Grant())
		}
		if i%3 == 2 {
			c.release(c.a, c.serve(w).Grant())
			c.wantRows(0)
			c.wantQueue(resource)
		}
	}
}

// crowdSeen looks at the queue after each enqueue: what one reader has seen is the beginning of what it sees later.
func crowdSeen(c *check) {
	c.queuer(c.a)
	var mu sync.Mutex
	for _, a := range c.atOnce(8, func(i int, store locks.Store) (locks.Lock, error) {
		var seen []int64
		for n := range 6 {
			request := locks.Request{Resource: resource, Owner: fmt.Sprintf("worker-%d", i), Attempt: fmt.Sprintf("attempt-%d", n), TTL: ttl}
			place, err := store.(locks.Queuer).Enqueue(c.Context(), request, 0)
			if err != nil {
				return locks.Lock{}, err
			}
			mu.Lock()
			c.placed(store, request, place)
			mu.Unlock()
			queue, err := store.(locks.Queuer).Waiters(c.Context(), resource, locks.MaxListWaiters)
			if err != nil {
				return locks.Lock{}, err
			}
			var now []int64
			for _, w := range queue.Waiters {
				now = append(now, w.Number)
			}
			if len(now) < len(seen) || !slices.Equal(now[:len(seen)], seen) || !slices.IsSorted(now) {
				return locks.Lock{}, fmt.Errorf("saw %v after %v", now, seen)
			}
			if !slices.Contains(now, place.Waiter().Number) {
				return locks.Lock{}, fmt.Errorf("number %d is not in the queue: %v", place.Waiter().Number, now)
			}
			seen = now
		}
		return locks.Lock{}, nil
	}) {
		if a.err != nil {
			c.Error(a.err)
		}
	}
}

func crowdGivenUp(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.a, resource, "worker-0")
	for i := range 16 {
		request, store := c.request(resource, fmt.Sprintf("worker-%d", i+1)), c.stores[i%2]
		c.queue(store, resource, 0) // not the opening of a connection is to be given up
		ctx, cancel := context.WithTimeout(c.Context(), time.Duration(i)*100*time.Microsecond)
		place, err := c.queuer(store).Enqueue(ctx, request, 0)
		cancel()
		switch {
		case err == nil:
			c.leave(c.placed(store, request, place))
		case !errors.Is(err, context.DeadlineExceeded):
			c.Errorf("given up: err = %v, want a place or context.DeadlineExceeded", err)
		}
	}
	c.untilWaiting(0)
	c.wantStored(holder)
}

// freeing releases a grant, and goes on while the database is busy.
func freeing(ctx context.Context, store locks.Store, lock locks.Lock) error {
	for {
		if err := store.Release(ctx, lock.Grant()); !errors.Is(err, locks.ErrBusy) {
			return err
		}
	}
}

// crowd runs n at once, the stores in turn; each waits, is let in, and releases. One that does so sends word of it. The
// function ends what is left of it.
func (c *check) crowd(n int, owner func(i int) string, rounds int) (in chan locks.Lock, end func()) {
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	var inside atomic.Int32
	in = make(chan locks.Lock, n*rounds)
	for i := range n {
		store := c.stores[i%len(c.stores)]
		running.Go(func() {
			for round := range rounds {
				request := locks.Request{Resource: resource, Owner: owner(i), Attempt: fmt.Sprintf("round-%d", round), TTL: ttl}
				lock, err := locks.Wait(ctx, store, request, locks.WaitOptions{Background: running.Go},
					func(ctx context.Context) (locks.Lock, error) { return store.Acquire(ctx, request) })
				if err != nil {
					if ctx.Err() == nil {
						c.Errorf("%s waits: %v", request.Owner, err)
					}
					return
				}
				if inside.Add(1) != 1 {
					c.Errorf("%s is not alone", request.Owner)
				}
				time.Sleep(rand.N(300 * time.Microsecond)) // lets others come
				in <- lock
				inside.Add(-1)
				if err := freeing(ctx, store, lock); err != nil && ctx.Err() == nil {
					c.Errorf("Release by %s: %v", request.Owner, err)
				}
			}
		})
	}
	return in, func() {
		cancel()
		running.Wait()
	}
}

// entered waits for the next one who was let in.
func (c *check) entered(in chan locks.Lock, already, want int) locks.Lock {
	c.Helper()
	late := time.NewTimer(c.patience)
	defer late.Stop()
	select {
	case lock := <-in:
		return lock
	case <-late.C:
		c.Fatalf("%d of %d were let in, and nobody more within %v; %d wait", already, want, c.patience, c.queue(c.a, resource, 0).Waiting)
		return locks.Lock{}
	}
}

func crowdAll(c *check) {
	c.queuer(c.a)
	const crowd = 52
	holder := c.acquire(c.a, resource, "worker-0")
	in, end := c.crowd(crowd, func(i int) string { return fmt.Sprintf("worker-%d", i+1) }, 1)
	defer end()
	c.untilWaiting(crowd)
	queue := c.queue(c.b, resource, locks.MaxListWaiters)
	c.release(c.b, holder.Grant())
	last := holder
	for i, w := range queue.Waiters {
		lock := c.entered(in, i, crowd)
		if lock.Owner != w.Owner || lock.Token <= last.Token {
			c.Errorf("number %d in the queue is %q; then %q was granted token %d after %d", i, w.Owner, lock.Owner, lock.Token, last.Token)
		}
		last = lock
	}
	c.wantQueue(resource)
	c.untilFree()
	c.wantRows(0)
}

// untilFree waits until nobody holds the resource: the last release may still be on its way.
func (c *check) untilFree() {
	c.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		lock, err := c.b.Get(c.Context(), resource)
		if errors.Is(err, locks.ErrNotFound) {
			return
		}
		if time.Since(began) > c.patience {
			c.Fatalf("still held after %v: %+v, %v", c.patience, lock, err)
		}
	}
}

func crowdRounds(c *check) {
	c.queuer(c.a)
	const crowd, rounds = 8, 3
	in, end := c.crowd(crowd, func(i int) string { return fmt.Sprintf("worker-%d", i) }, rounds)
	defer end()
	times := map[string]int{}
	var last int64
	for i := range crowd * rounds {
		lock := c.entered(in, i, crowd*rounds)
		if times[lock.Owner]++; lock.Token <= last {
			c.Errorf("token %d after %d", lock.Token, last)
		}
		last = lock.Token
	}
	for owner, n := range times {
		if n != rounds {
			c.Errorf("%s was let in %d times, want %d", owner, n, rounds)
		}
	}
	c.wantQueue(resource)
	c.untilFree()
	c.wantRows(0)
}
