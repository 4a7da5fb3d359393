package lockstest

import (
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func queuePromises() []promise {
	return []promise{
		{name: "who came first is granted first, whichever store they ask", stores: 3, test: queueOrder},
		{name: "enqueueing grants nothing", test: queueGrantsNothing},
		{name: "an attempt that waits keeps its place", test: queueAgain},
		{name: "the grant takes the ticket out", test: queueServed},
		{name: "the lease's time runs from the grant", test: queueTTL},
		{name: "tickets of different resources do not meet", test: queueApart},
		{name: "resources, owners and attempts of tickets are told apart by their bytes", test: queueNames},
	}
}

// waiter is one who stands in a queue.
type waiter struct {
	request locks.Request
	store   locks.Store
	place   locks.Place
	parted  bool // has called Served or Leave
}

// queuer returns the store's queue, or skips the test.
func (c *check) queuer(store locks.Store) locks.Queuer {
	c.Helper()
	queuer, ok := store.(locks.Queuer)
	if !ok {
		c.Skipf("not tested: waiting in a queue (%T is no locks.Queuer)", store)
	}
	return queuer
}

// wait is a new attempt of the owner that is given a place.
func (c *check) wait(store locks.Store, resource, owner string) *waiter {
	c.Helper()
	return c.enqueue(store, c.request(resource, owner))
}

// enqueue must give the request a place, which is left in the end.
func (c *check) enqueue(store locks.Store, request locks.Request) *waiter {
	c.Helper()
	place, err := c.queuer(store).Enqueue(c.Context(), request, 0)
	if err != nil {
		c.Fatalf("Enqueue(%.80q, owner %.80q, %.80q): %v", request.Resource, request.Owner, request.Attempt, err)
	}
	return c.placed(store, request, place)
}

func (c *check) placed(store locks.Store, request locks.Request, place locks.Place) *waiter {
	w := &waiter{request: request, store: store, place: place}
	c.Cleanup(func() {
		if !w.parted {
			_ = w.place.Leave(context.Background())
		}
	})
	return w
}

// leave must succeed.
func (c *check) leave(w *waiter) {
	c.Helper()
	w.parted = true
	if err := w.place.Leave(c.Context()); err != nil {
		c.Errorf("Leave of %.80q: %v", w.request.Owner, err)
	}
}

// serve is the waiter's acquire, which must be granted at once.
func (c *check) serve(w *waiter) locks.Lock {
	c.Helper()
	lock := c.grant(w.store, w.request)
	w.parted = true
	w.place.Served()
	return lock
}

// told waits until the waiter is told something.
func (c *check) told(w *waiter) { c.toldUntil(w, time.After(c.patience)) }

func (c *check) toldUntil(w *waiter, late <-chan time.Time) {
	c.Helper()
	select {
	case <-w.place.Turn():
	case <-late:
		c.Fatalf("%.80q is not told within %v of its turn, or of the end of its ticket", w.request.Owner, c.patience)
	}
}

// turn waits until the waiter is told of its turn and granted what it waits for. It may be told in vain, but not for ever.
func (c *check) turn(w *waiter) locks.Lock {
	c.Helper()
	for late := time.After(c.patience); ; {
		c.toldUntil(w, late)
		lock, err := w.store.Acquire(c.Context(), w.request)
		switch {
		case err == nil:
			w.parted = true
			w.place.Served()
			return lock
		case !errors.Is(err, locks.ErrHeld) && !errors.Is(err, locks.ErrBusy):
			c.Fatalf("the acquire of %.80q in its turn: %v", w.request.Owner, err)
		}
	}
}

// queue is who waits, by the store's word, at most limit of them.
func (c *check) queue(store locks.Store, resource string, limit int) locks.Queue {
	c.Helper()
	queue, err := c.queuer(store).Waiters(c.Context(), resource, limit)
	if err != nil {
		c.Fatalf("Waiters(%.80q, %d): %v", resource, limit, err)
	}
	return queue
}

// wantQueue says that these wait, in this order, by both stores' word.
func (c *check) wantQueue(resource string, want ...*waiter) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		queue := c.queue(store, resource, locks.MaxListWaiters)
		same := queue.Waiting == len(want) && len(queue.Waiters) == len(want)
		for i := 0; same && i < len(want); i++ {
			got, drawn := queue.Waiters[i], want[i].place.Waiter()
			same = got.Number == drawn.Number && got.Owner == want[i].request.Owner && got.Resource == resource && got.Since.Equal(drawn.Since)
		}
		if !same {
			c.Errorf("Waiters(%.80q): %d wait, %+v; want %d:", resource, queue.Waiting, queue.Waiters, len(want))
			for _, w := range want {
				c.Logf("    %+v", w.place.Waiter())
			}
		}
	}
}

// wantNobodyWaits says that a store with a queue has no ticket for these.
func (c *check) wantNobodyWaits(resources ...string) {
	c.Helper()
	if _, ok := c.a.(locks.Queuer); !ok {
		return
	}
	for _, name := range resources {
		c.wantQueue(name)
	}
}

// wantAwaited says that err is the answer "held" without a holder: the resource is free, and somebody waits for it.
func (c *check) wantAwaited(err error, resource string) {
	c.Helper()
	var held *locks.HeldError
	switch {
	case !errors.Is(err, locks.ErrHeld) || !errors.As(err, &held):
		c.Errorf("a try while others wait: err = %v, want a *HeldError", err)
	case held.Resource != resource:
		c.Errorf("HeldError.Resource = %.80q, want %.80q", held.Resource, resource)
	case held.Holder != nil || held.Remaining != 0:
		c.Errorf("HeldError has the holder %+v, want nil: the resource is free", held.Holder)
	}
}

// wantKeptOut says that a try of the request is refused through the store since others wait.
func (c *check) wantKeptOut(store locks.Store, request locks.Request) {
	c.Helper()
	lock, err := store.Acquire(c.Context(), request)
	c.wantAwaited(err, request.Resource)
	c.wantSame("the record beside the error", lock, locks.Lock{})
}

// wantNotYet says that the waiter is not granted what an open transaction has: it is refused, or kept waiting by the engine's
// one writer.
func (c *check) wantNotYet(w *waiter) {
	c.Helper()
	ctx, cancel := c.beside()
	defer cancel()
	_, err := w.store.Acquire(ctx, w.request)
	late := c.h.OneWriter && (errors.Is(err, locks.ErrBusy) || errors.Is(err, context.DeadlineExceeded))
	if !late && !errors.Is(err, locks.ErrHeld) {
		c.Errorf("the acquire of %q beside the open transaction: %v, want ErrHeld", w.request.Owner, err)
	}
}

func queueOrder(c *check) {
	holder := c.acquire(c.a, resource, "worker-0")
	waiters := make([]*waiter, 6)
	for i := range waiters {
		waiters[i] = c.wait(c.stores[i%3], resource, string(rune('f'-i))) // neither by name nor by store
	}
	c.wantQueue(resource, waiters...)
	for _, w := range waiters {
		_, err := w.store.Acquire(c.Context(), w.request)
		c.wantHeld(err, holder)
	}
	for i, w := range waiters {
		c.release(c.a, holder.Grant())
		if i+1 < len(waiters) {
			c.wantKeptOut(c.b, waiters[i+1].request)
			c.wantKeptOut(c.b, waiters[len(waiters)-1].request)
		}
		next := c.turn(w)
		if next.Owner != w.request.Owner || next.Token <= holder.Token {
			c.Errorf("granted %+v to %q after the token %d", next, w.request.Owner, holder.Token)
		}
		c.wantStored(next)
		for _, behind := range waiters[i+1:] {
			_, err := behind.store.Acquire(c.Context(), behind.request)
			c.wantHeld(err, next)
		}
		holder = next
	}
	c.wantQueue(resource)
	c.release(c.a, holder.Grant())
	c.acquire(c.b, resource, "worker-0")
}

func queueGrantsNothing(c *check) {
	w := c.wait(c.a, resource, "worker-1")
	c.wantFree(resource)
	c.wantRows(0)
	c.wantQueue(resource, w)
	lock := c.serve(w)
	c.wantStored(lock)
	second := c.wait(c.b, resource, "worker-2")
	c.wantStored(lock)
	c.wantRows(1)
	c.wantQueue(resource, second)
}

func queueAgain(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.a, resource, "worker-0")
	first := c.wait(c.a, resource, "worker-1")
	second := c.wait(c.b, resource, "worker-2")
	for _, store := range []locks.Store{c.a, c.b} {
		again := c.enqueue(store, first.request)
		if got, want := again.place.Waiter(), first.place.Waiter(); got.Number != want.Number || !got.Since.Equal(want.Since) {
			c.Errorf("enqueued again: %+v, want the ticket %+v", got, want)
		}
		c.wantQueue(resource, first, second)
	}
	newAttempt := c.wait(c.a, resource, "worker-1")
	sameAttempt := second.request
	sameAttempt.Owner = "worker-3"
	other := c.enqueue(c.b, sameAttempt)
	c.wantQueue(resource, first, second, newAttempt, other)
	c.release(c.b, holder.Grant())
	c.wantKeptOut(c.b, newAttempt.request)
	c.wantKeptOut(c.a, c.request(resource, "worker-1"))
	lock := c.serve(first)
	c.wantQueue(resource, second, newAttempt, other)
	c.release(c.a, lock.Grant())
	c.wantKeptOut(c.a, other.request)
	c.serve(second)
}

func queueServed(c *check) {
	waiters := []*waiter{c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2"), c.wait(c.a, resource, "worker-3")}
	for i, w := range waiters {
		lock := c.serve(w)
		c.wantStored(lock)
		c.wantQueue(resource, waiters[i+1:]...)
		c.wantSame("a retry", c.grant(c.b, w.request), lock)
		c.release(c.b, lock.Grant())
		c.wantQueue(resource, waiters[i+1:]...)
	}
	c.wantRows(0)
}

// queueTTL has a later ticket for a clock: the store's own.
func queueTTL(c *check) {
	w := c.wait(c.a, resource, "worker-1")
	var later locks.Waiter
	for later = w.place.Waiter(); !later.Since.After(w.place.Waiter().Since); {
		mark := c.wait(c.b, "a clock", "worker-1")
		later = mark.place.Waiter()
		c.leave(mark)
	}
	asked := time.Now()
	lock := c.serve(w)
	if lock.AcquiredAt.Before(later.Since) {
		c.Errorf("acquired at %v, and a ticket was drawn at %v before that", lock.AcquiredAt, later.Since)
	}
	if got := lock.ExpiresAt.Sub(lock.AcquiredAt); got != ttl {
		c.Errorf("granted for %v, want %v", got, ttl)
	}
	c.wantRemaining("the grant", lock.Remaining, ttl, asked)
}

func queueApart(c *check) {
	here := c.wait(c.a, resource, "worker-1")
	request := here.request
	request.Resource = "invoice:2026-0043"
	there := c.enqueue(c.b, request)
	c.acquire(c.a, "invoice:2026-0044", "worker-2")
	c.wantQueue(resource, here)
	c.wantQueue(request.Resource, there)
	c.wantQueue("invoice:2026-0044")
	c.wantKeptOut(c.b, c.request(request.Resource, "worker-2"))
	c.leave(here)
	c.wantQueue(request.Resource, there)
	c.acquire(c.b, resource, "worker-2")
	c.serve(there)
}

func queueNames(c *check) {
	c.queuer(c.a)
	names := goodNames()
	apart := make([]*waiter, len(names))
	for i, name := range append(names, longNames()...) {
		w := c.enqueue(c.stores[i%2], locks.Request{Resource: name, Owner: "worker-1", Attempt: "first", TTL: ttl})
		if i < len(apart) {
			apart[i] = w
		}
	}
	for i, name := range names {
		queue := c.queue(c.stores[1-i%2], name, 2)
		if queue.Waiting != 1 || len(queue.Waiters) != 1 || queue.Waiters[0].Number != apart[i].place.Waiter().Number || queue.Waiters[0].Resource != name {
			c.Errorf("Waiters(%q) = %+v, want %+v", name, queue, apart[i].place.Waiter())
		}
	}
	holder := c.acquire(c.a, resource, "worker-0")
	owners := make([]*waiter, 0, 2*len(names))
	for i, name := range names {
		owners = append(owners,
			c.enqueue(c.stores[i%2], locks.Request{Resource: resource, Owner: name, Attempt: "first", TTL: ttl}),
			c.enqueue(c.stores[i%2], locks.Request{Resource: resource, Owner: "worker-1", Attempt: name, TTL: ttl}))
	}
	c.wantQueue(resource, owners...)
	c.release(c.a, holder.Grant())
	c.wantKeptOut(c.b, owners[2].request)
	c.serve(owners[0])
}
