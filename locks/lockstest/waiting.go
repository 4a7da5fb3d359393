package lockstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// What a locker makes of the store's queue.
func waitingPromises() []promise {
	return []promise{
		{name: "who acquires through different lockers is served in the order of coming", test: waitingOrder},
		{name: "a waiter that is cancelled is granted nothing, and leaves no ticket", test: waitingCancelled},
		{name: "waiters that are cancelled at any instant leave neither a lease nor a ticket", test: waitingRandom},
	}
}

// locker is one over the store, which is closed in the end.
func (c *check) locker(store locks.Store) *locks.Locker {
	c.Helper()
	c.queuer(store)
	locker, err := locks.New(store)
	if err != nil {
		c.Fatalf("New: %v", err)
	}
	c.Cleanup(func() { _ = locker.Close(context.Background()) })
	return locker
}

func waitingOrder(c *check) {
	lockers := []*locks.Locker{c.locker(c.a), c.locker(c.b)}
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	holder := c.acquire(c.b, resource, "worker-0")
	const crowd = 6
	in := make(chan locks.Lock, crowd)
	for i := range crowd {
		running.Go(func() {
			lease, err := lockers[i%2].Acquire(ctx, resource, locks.WithOwner(fmt.Sprintf("worker-%d", crowd-i)))
			if err != nil {
				if ctx.Err() == nil {
					c.Errorf("Acquire: %v", err)
				}
				return
			}
			in <- locks.Lock{Owner: lease.Owner(), Token: lease.Token()}
			if err := lease.Release(ctx); err != nil && ctx.Err() == nil {
				c.Errorf("Release: %v", err)
			}
		})
		c.untilWaiting(i + 1)
	}
	c.release(c.b, holder.Grant())
	last := holder.Token
	for i := range crowd {
		lock := c.entered(in, i, crowd)
		if want := fmt.Sprintf("worker-%d", crowd-i); lock.Owner != want || lock.Token <= last {
			c.Errorf("%q was granted token %d after %d, want %q", lock.Owner, lock.Token, last, want)
		}
		last = lock.Token
	}
	c.untilFree()
	c.wantQueue(resource)
	c.wantRows(0)
}

func waitingCancelled(c *check) {
	locker := c.locker(c.a)
	holder := c.acquire(c.b, resource, "worker-0")
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		lease, err := locker.Acquire(ctx, resource)
		if err == nil {
			err = fmt.Errorf("granted token %d", lease.Token())
		}
		ended <- err
	}()
	c.untilWaiting(1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, locks.ErrHeld) {
		c.Errorf("Acquire, cancelled while it waits: %v, want context.Canceled, joined with ErrHeld", err)
	}
	c.untilWaiting(0)
	c.wantStored(holder)
	c.release(c.b, holder.Grant())
	c.wantFree(resource)
	c.wantRows(0)
	c.acquire(c.b, resource, "worker-1")
}

// untilGranted acquires what is free as soon as what was given up before has ended: a server can still be at work on a
// statement whose caller has gone, and have the resource's gate.
func (c *check) untilGranted(request locks.Request) locks.Lock {
	c.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		lock, err := c.a.Acquire(c.Context(), request)
		if err == nil {
			return lock
		}
		if !errors.Is(err, locks.ErrHeld) || time.Since(began) > c.patience {
			c.Fatalf("Acquire of what is free: %v after %v", err, time.Since(began))
		}
	}
}

// waitingRandom cancels a waiter about when what it waits for is released.
func waitingRandom(c *check) {
	locker := c.locker(c.a)
	for range 24 {
		holder := c.untilGranted(c.request(resource, "worker-0"))
		ctx, cancel := context.WithCancel(c.Context())
		ended := make(chan error, 1)
		go func() {
			lease, err := locker.Acquire(ctx, resource)
			if err == nil {
				err = lease.Release(c.Context())
			}
			ended <- err
		}()
		c.untilWaiting(1)
		var both sync.WaitGroup
		both.Go(func() {
			time.Sleep(rand.N(2 * time.Millisecond))
			cancel()
		})
		time.Sleep(rand.N(time.Millisecond))
		c.release(c.a, holder.Grant())
		both.Wait()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.Errorf("Acquire, cancelled about when it is granted: %v, want a lease or context.Canceled", err)
		}
		c.untilWaiting(0)
		c.untilFree()
	}
	c.wantRows(0)
}
