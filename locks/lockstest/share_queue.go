package lockstest

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

func shareQueuePromises() []promise {
	return []promise{
		{name: "a reader that comes after a waiting writer gets in after it", test: shareQueueWriter},
		{name: "readers that wait get in one after another, without another release", test: shareQueueReaders},
		{name: "who waits for a slot gets in in the order of coming, one for each that is freed", stores: 3, test: shareQueueSlots},
		{name: "after a release of all as many who wait get in as there are slots", stores: 3, test: shareQueueAll},
		{name: "when a waiting writer leaves, the reader behind it is told", test: shareQueueLeave},
		{name: "when a waiting writer's ticket ends, the reader behind it is told", test: shareQueueLapse},
		{name: "who barges joins a group past those who wait", test: shareQueueBarge},
		{name: "who is in the group is granted anew past those who wait", test: shareQueueAgain},
		{name: "a share that ends by time makes room for the first one who waits", test: shareQueueEnded},
		{name: "a forced release of a share makes room for the first one who waits", test: shareQueueForced},
		{name: "the end of a transaction that guards an ended share makes room for the first one who waits", test: shareQueueGuarded},
		{name: "a share found again takes its attempt's ticket along", test: shareQueueFound},
		{name: "who waits with other slots than those who get in before is told, and refused", test: shareQueueUnfit},
	}
}

// awaits gives the owner's request for a share a place.
func (c *check) awaits(store locks.Store, owner string, slots int) *waiter {
	c.Helper()
	c.sharer(store)
	return c.enqueue(store, c.asks(owner, slots))
}

// wantStay says that the requests are refused as held, with a holder or without one.
func (c *check) wantStay(requests ...locks.Request) {
	c.Helper()
	for _, request := range requests {
		for _, store := range []locks.Store{c.a, c.b} {
			lock, err := store.Acquire(c.Context(), request)
			if !errors.Is(err, locks.ErrHeld) {
				c.Errorf("Acquire by %q, of slots %d, while others wait: %v, want ErrHeld", request.Owner, request.Slots, err)
			}
			c.wantSame("the record beside the error", lock, locks.Lock{})
		}
	}
}

// wantWaits says that the first one who waits is refused still. What it was told before that was in vain, and is forgotten, so
// that it must be told anew of what comes.
func (c *check) wantWaits(w *waiter) {
	c.Helper()
	select {
	case <-w.place.Turn():
	default:
	}
	c.wantStay(w.request)
}

func shareQueueWriter(c *check) {
	c.queuer(c.a)
	reader := c.readers(1)[0]
	writer := c.wait(c.a, resource, "worker-0")
	c.wantStay(c.asks("worker-2", locks.Shared), writer.request)
	second := c.awaits(c.b, "worker-2", locks.Shared)
	c.wantWaits(writer)
	c.wantStay(second.request)
	c.wantShared(reader)
	c.wantQueue(resource, writer, second)
	c.release(c.b, reader.Grant())
	c.wantStay(second.request, c.asks("worker-3", locks.Shared), c.asks("worker-3", 2), c.request(resource, "worker-3"))
	lock := c.turn(writer)
	c.wantStored(lock)
	c.wantQueue(resource, second)
	c.wantOut(second.request, lock)
	c.release(c.b, lock.Grant())
	c.wantStay(c.asks("worker-3", locks.Shared))
	c.wantShared(c.turn(second))
	c.wantQueue(resource)
	c.share(c.a, "worker-3", locks.Shared) // nobody waits any more
}

func shareQueueReaders(c *check) {
	c.queuer(c.a)
	reader := c.readers(1)[0]
	writer := c.wait(c.a, resource, "worker-0")
	waiters := []*waiter{
		c.awaits(c.b, "worker-3", locks.Shared), c.awaits(c.a, "worker-2", locks.Shared), c.awaits(c.b, "worker-1", locks.Shared),
	}
	last := c.wait(c.b, resource, "worker-9")
	c.release(c.a, reader.Grant())
	lock := c.turn(writer)
	c.release(c.b, lock.Grant())
	readers := make([]locks.Lock, 0, len(waiters))
	for i, w := range waiters {
		readers = append(readers, c.turn(w))
		c.wantShared(readers...)
		c.wantQueue(resource, append(waiters[i+1:len(waiters):len(waiters)], last)...)
	}
	c.wantStay(last.request, c.asks("worker-8", locks.Shared))
	for _, reader := range readers {
		c.release(c.a, reader.Grant())
	}
	c.wantStored(c.turn(last))
}

func shareQueueSlots(c *check) {
	c.queuer(c.a)
	shares := c.fill(2, 2)
	waiters := make([]*waiter, 4)
	for i := range waiters {
		waiters[i] = c.awaits(c.stores[i%3], string(rune('f'-i)), 2) // neither by name nor by store
	}
	for i, w := range waiters {
		for _, waiting := range waiters[i:] {
			c.wantWaits(waiting)
		}
		c.release(c.stores[i%3], shares[0].Grant())
		for _, behind := range waiters[i+1:] {
			c.wantStay(behind.request)
		}
		c.wantStay(c.asks("worker-9", 2))
		shares = append(shares[1:], c.turn(w))
		c.wantShared(shares...)
		c.wantQueue(resource, waiters[i+1:]...)
	}
	c.wantOut(c.asks("worker-9", 2), shares[0])
}

func shareQueueAll(c *check) {
	c.queuer(c.a)
	c.sharer(c.a)
	lock := c.acquire(c.a, resource, "worker-0")
	waiters := make([]*waiter, 4)
	for i := range waiters {
		waiters[i] = c.awaits(c.stores[i%3], fmt.Sprintf("worker-%d", 9-i), 3)
	}
	c.release(c.b, lock.Grant())
	shares := []locks.Lock{c.turn(waiters[0]), c.turn(waiters[1]), c.turn(waiters[2])}
	c.wantShared(shares...)
	c.wantWaits(waiters[3])
	c.wantQueue(resource, waiters[3])
	c.release(c.a, shares[1].Grant())
	c.wantShared(shares[0], shares[2], c.turn(waiters[3]))
}

func shareQueueLeave(c *check) {
	c.queuer(c.a)
	reader := c.readers(1)[0]
	writer := c.wait(c.a, resource, "worker-0")
	second, third := c.awaits(c.b, "worker-2", locks.Shared), c.awaits(c.a, "worker-3", locks.Shared)
	c.wantWaits(writer)
	c.wantWaits(second)
	c.leave(writer)
	shares := []locks.Lock{reader, c.turn(second), c.turn(third)}
	c.wantShared(shares...)
	c.wantQueue(resource)
}

func shareQueueLapse(c *check) {
	c.queuer(c.a)
	reader := c.readers(1)[0]
	writer := c.wait(c.a, resource, "worker-0")
	second := c.awaits(c.b, "worker-2", locks.Shared)
	c.wantWaits(writer)
	c.wantWaits(second)
	c.expireTicket(writer)
	c.wantShared(reader, c.turn(second))
	c.wantQueue(resource)
}

func shareQueueBarge(c *check) {
	c.queuer(c.a)
	readers := c.readers(1)
	writer := c.wait(c.a, resource, "worker-0")
	behind := c.awaits(c.b, "worker-9", locks.Shared)
	for i, store := range []locks.Store{c.b, c.a} {
		request := c.asks(fmt.Sprintf("worker-%d", i+2), locks.Shared)
		c.wantStay(request)
		request.Barge = true
		readers = append(readers, c.grant(store, request))
		c.wantShared(readers...)
		c.wantQueue(resource, writer, behind)
	}
	behind.request.Barge = true
	readers = append(readers, c.serve(behind))
	c.wantShared(readers...)
	c.wantQueue(resource, writer)
	for _, reader := range readers {
		c.release(c.a, reader.Grant())
	}
	request := c.asks("worker-1", 2) // a group begins
	c.wantStay(request)
	request.Barge = true
	c.wantShared(c.grant(c.b, request))
	c.wantQueue(resource, writer)
}

func shareQueueAgain(c *check) {
	c.queuer(c.a)
	for _, slots := range []int{locks.Shared, 2} {
		shares := c.fill(2, slots)
		writer := c.wait(c.a, resource, "worker-0")
		behind := c.awaits(c.b, "worker-9", slots)
		for i, store := range []locks.Store{c.a, c.b} {
			old, request := shares[i], c.asks(shares[i].Owner, slots)
			shares[i] = c.granted(c.grant(store, request), old.Owner, slots)
			if shares[i].ID != old.ID || shares[i].Token <= old.Token {
				c.Errorf("id %d, token %d in place of id %d, token %d", shares[i].ID, shares[i].Token, old.ID, old.Token)
			}
			c.wantSame("a retry", c.grant(c.b, request), shares[i])
			shares[i] = c.renew(c.a, shares[i].Grant(), 2*ttl)
			c.wantGone(old.Grant(), locks.ErrSuperseded)
			c.wantShared(shares...)
			c.wantQueue(resource, writer, behind)
		}
		c.leave(writer)
		c.leave(behind)
		c.release(c.a, shares[0].Grant())
		c.release(c.b, shares[1].Grant())
	}
}

func shareQueueEnded(c *check) {
	c.queuer(c.a)
	shares := c.fill(3, 3)
	waiters := []*waiter{c.awaits(c.a, "worker-9", 3), c.awaits(c.b, "worker-8", 3)}
	writer := c.wait(c.a, resource, "worker-0")
	for i, w := range waiters {
		c.wantWaits(w)
		c.expireShare(shares[i].Owner)
		if i == 0 {
			c.wantStay(waiters[1].request, c.asks(shares[0].Owner, 3)) // the one that ended, too
		}
		shares = append(shares, c.turn(w))
	}
	c.wantShared(shares[2:]...)
	for _, share := range shares[2:] {
		c.wantWaits(writer)
		c.expireShare(share.Owner)
	}
	c.wantStored(c.turn(writer))
}

func shareQueueForced(c *check) {
	c.queuer(c.a)
	c.forcer(c.a)
	shares := c.fill(2, 2)
	waiters := []*waiter{c.awaits(c.a, "worker-9", 2), c.awaits(c.b, "worker-8", 2), c.awaits(c.a, "worker-7", 2)}
	c.wantWaits(waiters[0])
	c.forceRelease(c.b, shares[0])
	third := c.turn(waiters[0])
	c.wantWaits(waiters[1])
	c.forceRelease(c.b, c.wantShared(shares[1], third))
	c.wantShared(c.turn(waiters[1]), c.turn(waiters[2]))
}

func shareQueueGuarded(c *check) {
	c.queuer(c.a)
	c.sharer(c.a)
	c.needsManyWriters()
	for _, end := range []func(Transaction){c.rollback, c.commit} {
		shares := c.fill(2, 2)
		w := c.awaits(c.b, "worker-9", 2)
		tx := c.begin(c.a)
		c.guard(tx, shares[0].Grant())
		c.expireShare("worker-1")
		c.wantWaits(w)
		end(tx)
		third := c.turn(w)
		c.wantShared(shares[1], third)
		c.release(c.a, shares[1].Grant())
		c.release(c.a, third.Grant())
	}
}

func shareQueueUnfit(c *check) {
	c.queuer(c.a)
	c.sharer(c.a)
	lock := c.acquire(c.a, resource, "worker-0")
	first, second, third := c.awaits(c.a, "worker-1", 2), c.awaits(c.b, "worker-2", 3), c.awaits(c.a, "worker-3", 2)
	c.release(c.b, lock.Grant())
	shares := []locks.Lock{c.turn(first)}
	c.told(second)
	c.wantUnfit(second.request, 2)
	c.leave(second)
	shares = append(shares, c.turn(third))
	c.wantShared(shares...)
	c.wantQueue(resource)
}

// shareQueueFound is a retry whose first request was granted after it had been refused.
func shareQueueFound(c *check) {
	c.queuer(c.a)
	c.sharer(c.a)
	request := c.asks("worker-1", 2)
	first := c.granted(c.grant(c.a, request), "worker-1", 2)
	c.foundInQueue(request, first)
	c.share(c.b, "worker-2", 2)
}
