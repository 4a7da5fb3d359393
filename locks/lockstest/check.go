package lockstest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// resource is what most tests guard, and ttl how long they ask for it: no lease of that length ends during a test.
const (
	resource = "invoice:2026-0042"
	ttl      = time.Hour
)

// check is one running test: its [testing.TB], its stores, and the words that the tests are written in.
type check struct {
	testing.TB
	h      Harness
	stores []locks.Store
	a, b   locks.Store // the first two: the same database over different connections

	attempts int
	patience time.Duration // how long a test waits for what must come
	waited   bool          // a try beside an open transaction was refused by the engine's one writer
}

func newCheck(tb testing.TB, h Harness, stores int) *check {
	tb.Helper()
	stores = max(stores, 2)
	c := &check{TB: tb, h: h, stores: h.Open(tb, stores), patience: 30 * time.Second}
	if len(c.stores) != stores {
		tb.Fatalf("harness: Open(%d) returned %d stores", stores, len(c.stores))
	}
	c.a, c.b = c.stores[0], c.stores[1]
	return c
}

// request asks for the resource with an attempt of its own. It is not for use by several goroutines.
func (c *check) request(resource, owner string) locks.Request {
	c.attempts++
	return locks.Request{Resource: resource, Owner: owner, Attempt: fmt.Sprintf("attempt-%d", c.attempts), TTL: ttl}
}

// grant is a request that must be granted.
func (c *check) grant(store locks.Store, request locks.Request) locks.Lock {
	c.Helper()
	lock, err := store.Acquire(c.Context(), request)
	if err != nil {
		c.Fatalf("Acquire(%.80q, owner %.80q, %q): %v", request.Resource, request.Owner, request.Attempt, err)
	}
	return lock
}

// acquire is a new attempt of the owner that must be granted.
func (c *check) acquire(store locks.Store, resource, owner string) locks.Lock {
	c.Helper()
	return c.grant(store, c.request(resource, owner))
}

// renew must succeed.
func (c *check) renew(store locks.Store, grant locks.Grant, ttl time.Duration) locks.Lock {
	c.Helper()
	lock, err := store.Renew(c.Context(), grant, ttl)
	if err != nil {
		c.Fatalf("Renew(%+v, %v): %v", grant, ttl, err)
	}
	return lock
}

// release must succeed.
func (c *check) release(store locks.Store, grant locks.Grant) {
	c.Helper()
	if err := store.Release(c.Context(), grant); err != nil {
		c.Fatalf("Release(%+v): %v", grant, err)
	}
}

// get must find a live lease.
func (c *check) get(store locks.Store, resource string) locks.Lock {
	c.Helper()
	lock, err := store.Get(c.Context(), resource)
	if err != nil {
		c.Fatalf("Get(%.80q): %v", resource, err)
	}
	return lock
}

// expire ends the resource's lease through the back door.
func (c *check) expire(resource string) {
	c.Helper()
	c.h.Expire(c.TB, c.b, resource)
}

// deleteRow deletes the resource's row by hand, or skips the test.
func (c *check) deleteRow(resource string) {
	c.Helper()
	if c.h.DeleteRow == nil {
		c.Skip("not tested: a row deleted by hand (the harness has no DeleteRow)")
	}
	c.h.DeleteRow(c.TB, c.b, resource)
}

// wantRows counts the rows, where the harness can.
func (c *check) wantRows(want int) {
	c.Helper()
	if c.h.Rows == nil {
		c.Logf("not tested: that there are %d rows now (the harness has no Rows)", want)
		return
	}
	if got := c.h.Rows(c.TB, c.b); got != want {
		c.Errorf("%d rows, want %d", got, want)
	}
}

// wantFree says that nobody holds the resource, by both stores' word.
func (c *check) wantFree(resource string) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		if lock, err := store.Get(c.Context(), resource); !errors.Is(err, locks.ErrNotFound) {
			c.Errorf("Get(%.80q) = %+v, %v, want ErrNotFound", resource, lock, err)
		}
	}
}

// wantSame compares all of two records but the time that remained.
func (c *check) wantSame(what string, got, want locks.Lock) {
	c.Helper()
	if d := difference(got, want); d != "" {
		c.Errorf("%s: %s\n got %+v\nwant %+v", what, d, got, want)
	}
}

// wantStored says that the resource's record is this one, by both stores' word.
func (c *check) wantStored(want locks.Lock) {
	c.Helper()
	c.wantSame("Get", c.get(c.a, want.Resource), want)
	c.wantSame("Get through the other store", c.get(c.b, want.Resource), want)
}

func difference(got, want locks.Lock) string {
	switch {
	case got.ID != want.ID:
		return "ID differs"
	case got.Resource != want.Resource:
		return "Resource differs"
	case got.Owner != want.Owner:
		return "Owner differs"
	case got.Slots != want.Slots:
		return "Slots differ"
	case got.Token != want.Token:
		return "Token differs"
	case !got.AcquiredAt.Equal(want.AcquiredAt):
		return "AcquiredAt differs"
	case !got.ExpiresAt.Equal(want.ExpiresAt):
		return "ExpiresAt differs"
	case !bytes.Equal(got.Metadata, want.Metadata) || (got.Metadata == nil) != (want.Metadata == nil):
		return fmt.Sprintf("Metadata differs: got %q, want %q", got.Metadata, want.Metadata)
	}
	return ""
}

// wantRemaining says that the whole TTL was left at an instant between asked and now.
func (c *check) wantRemaining(what string, got, ttl time.Duration, asked time.Time) {
	c.Helper()
	const slack = 5 * time.Millisecond // clocks of milliseconds, and two clocks' different pace
	if least := ttl - time.Since(asked) - slack; got > ttl+slack || got < least {
		c.Errorf("%s: Remaining = %v, want from %v to %v", what, got, least, ttl)
	}
}

// wantHeld says that err is the answer "held", with the holder's facts, and returns the time that remains.
func (c *check) wantHeld(err error, holder locks.Lock) time.Duration {
	c.Helper()
	var held *locks.HeldError
	switch {
	case !errors.Is(err, locks.ErrHeld) || !errors.As(err, &held):
		c.Errorf("err = %v, want a *HeldError", err)
	case held.Resource != holder.Resource:
		c.Errorf("HeldError.Resource = %.80q, want %.80q", held.Resource, holder.Resource)
	case held.Holder == nil:
		c.Error("HeldError.Holder = nil, though no other call is running")
	default:
		c.wantSame("HeldError.Holder", *held.Holder, holder)
		if held.Remaining <= 0 || held.Remaining != held.Holder.Remaining {
			c.Errorf("HeldError.Remaining = %v, Holder.Remaining = %v, want the same time, above 0", held.Remaining, held.Holder.Remaining)
		}
		return held.Remaining
	}
	return 0
}

// wantLost says that err is a *LostError of the grant, of this reason and of no other.
func (c *check) wantLost(err error, grant locks.Grant, reason error) {
	c.Helper()
	var lost *locks.LostError
	if !errors.As(err, &lost) {
		c.Errorf("err = %v, want a *LostError: %v", err, reason)
		return
	}
	if lost.Grant != grant {
		c.Errorf("LostError.Grant = %+v, want %+v", lost.Grant, grant)
	}
	if !errors.Is(err, locks.ErrLost) {
		c.Errorf("err = %v is not ErrLost", err)
	}
	for _, r := range []error{locks.ErrNotHeld, locks.ErrExpired, locks.ErrNotOwner, locks.ErrSuperseded} {
		if errors.Is(err, r) != errors.Is(reason, r) {
			c.Errorf("err = %v, want only: %v", err, reason)
		}
	}
}

// answer is what one of several calls that ran at once returned.
type answer struct {
	lock locks.Lock
	err  error
}

// atOnce runs n calls at the same time, the stores in turn, and returns their answers.
func (c *check) atOnce(n int, call func(i int, store locks.Store) (locks.Lock, error)) []answer {
	c.Helper()
	answers := make([]answer, n)
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			<-start
			answers[i].lock, answers[i].err = call(i, c.stores[i%len(c.stores)])
		})
	}
	close(start)
	running.Wait()
	return answers
}

// wantOneWinner says that exactly one of the answers is a grant and every other one is of this kind; it returns the
// grant.
func (c *check) wantOneWinner(answers []answer, others error) locks.Lock {
	c.Helper()
	var won []locks.Lock
	for _, a := range answers {
		switch {
		case a.err == nil:
			won = append(won, a.lock)
		case !errors.Is(a.err, others):
			c.Errorf("err = %v, want only: %v", a.err, others)
		}
	}
	if len(won) != 1 {
		c.Fatalf("%d of %d calls at once succeeded, want 1", len(won), len(answers))
	}
	return won[0]
}
