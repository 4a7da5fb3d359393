package lockstest

import (
	"time"

	"github.com/rowlease/rowlease/locks"
)

func turnPromises() []promise {
	return []promise{
		{name: "the first one is told after a release", test: turnAfter(func(c *check, lock locks.Lock, _ locks.Request, _ *waiter) {
			c.release(c.a, lock.Grant())
		})},
		{name: "the first one is told after a release by attempt", test: turnAfter(func(c *check, _ locks.Lock, request locks.Request, _ *waiter) {
			if err := c.a.ReleaseAttempt(c.Context(), request.Resource, request.Owner, request.Attempt); err != nil {
				c.Fatalf("ReleaseAttempt: %v", err)
			}
		})},
		{name: "the first one is told after a forced release", test: turnAfter(func(c *check, lock locks.Lock, _ locks.Request, _ *waiter) {
			c.forceRelease(c.a, lock)
		})},
		{name: "the first one is told after the lease has ended by time", test: turnAfter(func(c *check, lock locks.Lock, _ locks.Request, _ *waiter) {
			c.expire(lock.Resource)
		})},
		{name: "the first one is told after a release in a transaction, when that has committed", test: turnAfter(turnAfterTx)},
		{name: "the first one is told after the rollback of what it was refused for", test: turnAfter(turnAfterRollback)},
		{name: "the next one is told after the first one has left", test: turnAfterLeaving},
		{name: "the next one is told after the first one's ticket has ended by time", test: turnAfterDeath},
		{name: "a ticket that ended by time is passed over, and its waiter told so", test: goneDead},
		{name: "who lost its ticket queues again behind those who came meanwhile", test: goneAgain},
		{name: "a ticket that ended by time keeps nobody out, nor its own attempt", test: goneAlone},
		{name: "who leaves is out of the queue, once", test: goneLeft},
		{name: "leaving after the grant ends nothing", test: goneServed},
	}
}

// turnAfter frees a resource through the first store, and wants the first one in its queue to get it, whichever store it asks.
func turnAfter(free func(c *check, lock locks.Lock, request locks.Request, first *waiter)) func(*check) {
	return func(c *check) {
		c.queuer(c.a)
		type queued struct{ first, second *waiter }
		var all []queued
		for i, name := range []string{"invoice:1", "invoice:2"} {
			request := c.request(name, "worker-0")
			lock := c.grant(c.a, request)
			all = append(all, queued{c.wait(c.stores[i], name, "worker-1"), c.wait(c.stores[1-i], name, "worker-2")})
			free(c, lock, request, all[i].first)
		}
		for _, q := range all {
			lock := c.turn(q.first)
			c.wantStored(lock)
			c.wantQueue(lock.Resource, q.second)
			c.release(q.first.store, lock.Grant())
		}
		for _, q := range all {
			c.wantStored(c.turn(q.second))
		}
	}
}

func turnAfterTx(c *check, lock locks.Lock, _ locks.Request, first *waiter) {
	tx := c.begin(c.a)
	c.releaseTx(tx, lock.Grant())
	c.wantStored(lock)
	c.wantNotYet(first)
	c.commit(tx)
}

func turnAfterRollback(c *check, lock locks.Lock, _ locks.Request, first *waiter) {
	c.expire(lock.Resource)
	c.told(first)
	tx := c.begin(c.a)
	barging := c.request(lock.Resource, "worker-3")
	barging.Barge = true
	c.grantTx(tx, barging)
	c.wantNotYet(first)
	select {
	case <-first.place.Turn(): // in vain
	default:
	}
	c.rollback(tx)
}

func turnAfterLeaving(c *check) {
	first, second, third := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2"), c.wait(c.a, resource, "worker-3")
	c.wantKeptOut(c.b, second.request)
	c.leave(first)
	lock := c.turn(second)
	c.expire(resource)
	c.leave(c.wait(c.a, resource, "worker-4")) // the last one
	next := c.turn(third)
	if next.Token <= lock.Token {
		c.Errorf("token %d after %d", next.Token, lock.Token)
	}
}

// expireTicket ends a waiter's ticket through the back door, or skips the test.
func (c *check) expireTicket(w *waiter) {
	c.Helper()
	if c.h.ExpireTicket == nil {
		c.Skip("not tested: tickets that end by time (the harness has no ExpireTicket)")
	}
	c.h.ExpireTicket(c.TB, w.store, w.place.Waiter().Number)
}

// wantLapsed waits until a waiter is told that its ticket has ended.
func (c *check) wantLapsed(w *waiter) {
	c.Helper()
	for late := time.After(c.patience); !w.place.Lapsed(); {
		c.toldUntil(w, late)
	}
}

func turnAfterDeath(c *check) {
	first, second := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2")
	c.wantKeptOut(c.b, second.request)
	c.expireTicket(first)
	c.turn(second)
}

func goneDead(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.b, resource, "worker-0")
	dead, second, third := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2"), c.wait(c.a, resource, "worker-3")
	c.expireTicket(dead)
	c.wantQueue(resource, second, third)
	c.release(c.b, holder.Grant())
	c.wantKeptOut(c.a, dead.request)
	c.wantKeptOut(c.b, third.request)
	lock := c.turn(second)
	_, err := c.a.Acquire(c.Context(), dead.request)
	c.wantHeld(err, lock)
	c.wantLapsed(dead)
	if third.place.Lapsed() {
		c.Error("another one is told that its ticket has ended")
	}
	c.leave(dead)
	c.wantQueue(resource, third)
	c.release(c.a, lock.Grant())
	c.wantKeptOut(c.a, dead.request)
	c.turn(third)
}

func goneAgain(c *check) {
	c.queuer(c.a)
	holder := c.acquire(c.b, resource, "worker-0")
	dead, second := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2")
	c.expireTicket(dead)
	c.wantLapsed(dead)
	c.leave(dead)
	again := c.enqueue(c.a, dead.request)
	if again.place.Waiter().Number <= second.place.Waiter().Number || again.place.Lapsed() {
		c.Errorf("queued again as %+v behind %+v, lapsed %v", again.place.Waiter(), second.place.Waiter(), again.place.Lapsed())
	}
	c.wantQueue(resource, second, again)
	c.release(c.b, holder.Grant())
	c.wantKeptOut(c.a, again.request)
	lock := c.turn(second)
	c.release(c.b, lock.Grant())
	c.turn(again)
}

func goneAlone(c *check) {
	dead := c.wait(c.a, resource, "worker-1")
	c.expireTicket(dead)
	c.wantQueue(resource)
	lock := c.acquire(c.b, resource, "worker-2")
	c.release(c.b, lock.Grant())
	lock = c.grant(c.b, dead.request)
	c.wantStored(lock)
	c.wantQueue(resource)
	c.leave(dead)
	c.wantStored(lock)
}

func goneLeft(c *check) {
	first, second, third := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2"), c.wait(c.a, resource, "worker-3")
	c.leave(second)
	c.wantQueue(resource, first, third)
	c.leave(second)
	c.wantQueue(resource, first, third)
	again := c.enqueue(c.b, second.request)
	if again.place.Waiter().Number <= third.place.Waiter().Number {
		c.Errorf("queued again as %+v, want it behind %+v", again.place.Waiter(), third.place.Waiter())
	}
	c.wantQueue(resource, first, third, again)
	c.leave(first)
	c.wantKeptOut(c.b, again.request)
	c.serve(third)
	c.leave(again)
	c.wantQueue(resource)
}

func goneServed(c *check) {
	first, second := c.wait(c.a, resource, "worker-1"), c.wait(c.b, resource, "worker-2")
	lock := c.grant(c.a, first.request)
	c.leave(first) // given up in the instant of the grant, of which it does not know
	c.wantStored(lock)
	c.wantQueue(resource, second)
	_, err := c.b.Acquire(c.Context(), second.request)
	c.wantHeld(err, lock)
	c.release(c.b, lock.Grant())
	c.turn(second)
}
