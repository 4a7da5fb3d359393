package waitqueue

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// place is one waiter of this process, or several that wait for the same attempt, a request and its retry: they have one
// ticket.
type place struct {
	front   *Front
	waiter  locks.Waiter
	request locks.Request
	turn    chan struct{} // holds one element when it may be its turn
	lapsed  atomic.Bool
	others  int // how many wait here besides the first, under the front's mutex
}

func (p *place) Waiter() locks.Waiter  { return p.waiter }
func (p *place) Turn() <-chan struct{} { return p.turn }
func (p *place) Lapsed() bool          { return p.lapsed.Load() }

func (p *place) signal() {
	select {
	case p.turn <- struct{}{}:
	default:
	}
}

// Served implements [locks.Place].
func (p *place) Served() { p.front.takeOff(p) }

// Leave implements [locks.Place].
func (p *place) Leave(ctx context.Context) error {
	last, there := p.front.takeOff(p)
	if !last || !there && p.lapsed.Load() {
		return nil
	}
	return p.front.dequeue(ctx, p.request)
}

// takeOff takes one of those who wait here off, and with the last one the place; it reports whether it was the last, and
// the place there. The others are called, since the turn may be gone with it, or the grant that it has is theirs too.
func (f *Front) takeOff(p *place) (last, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.others > 0 {
		p.others--
		p.signal()
		return false, false
	}
	return true, f.partLocked(p)
}

// join makes a place of a ticket and starts what keeps it.
func (f *Front) join(waiter locks.Waiter, request locks.Request) *place {
	p := &place{front: f, waiter: waiter, request: request, turn: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if same := f.places[waiter.Number]; same != nil {
		same.others++
		return same
	}
	f.places[waiter.Number] = p
	q := f.queues[waiter.Resource]
	if q == nil {
		q = &queue{resource: waiter.Resource}
		f.queues[waiter.Resource] = q
	}
	at, _ := q.find(waiter.Number)
	q.places = slices.Insert(q.places, at, p)
	if at == 0 {
		f.lookSoonLocked(q)
	}
	if !f.running {
		f.running = true
		go f.run()
	}
	f.listenLocked()
	return p
}

// find returns where in the queue the ticket is, or belongs.
func (q *queue) find(ticket int64) (at int, there bool) {
	return slices.BinarySearchFunc(q.places, ticket, func(p *place, ticket int64) int { return cmp.Compare(p.waiter.Number, ticket) })
}

// waits reports whether somebody waits here for the request's attempt.
func (f *Front) waits(request locks.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[request.Resource]
	return q != nil && slices.ContainsFunc(q.places, func(p *place) bool {
		return p.request.Owner == request.Owner && p.request.Attempt == request.Attempt
	})
}

// partLocked takes a place out, and reports whether it was there.
func (f *Front) partLocked(p *place) bool {
	if f.places[p.waiter.Number] != p {
		return false
	}
	delete(f.places, p.waiter.Number)
	q := f.queues[p.waiter.Resource]
	at, _ := q.find(p.waiter.Number)
	if at == 0 { // all that are granted go from here: the others are not moved up each time
		q.places[0] = nil
		q.places = q.places[1:]
	} else {
		q.places = slices.Delete(q.places, at, at+1)
	}
	switch {
	case len(q.places) == 0:
		delete(f.queues, q.resource)
		if len(f.places) == 0 {
			f.lingerLocked()
			f.notifyLocked()
		}
	case at == 0:
		f.lookSoonLocked(q)
	}
	return true
}

// lookSoonLocked makes the first place of a queue be looked at: not at once, since its waiter acquires by itself when it
// has been told.
func (f *Front) lookSoonLocked(q *queue) {
	wait := f.config.MinPoll
	if f.hearsLocked() { // a look finds out when to look again; while turns follow each other, none is needed
		wait = f.config.MaxPoll
	}
	q.pause, q.hurried = f.config.MinPoll, false
	q.lookAt = time.Now().Add(wait)
	if q.lookAt.Before(f.wakeAt) {
		f.notifyLocked()
	}
}

// lookAtAllLocked makes everything be looked at now: what was announced before may not have been heard.
func (f *Front) lookAtAllLocked() {
	now := time.Now()
	for _, q := range f.queues {
		q.lookAt, q.pause = now, f.config.MinPoll
	}
	f.notifyLocked()
}

// notifyLocked makes the goroutine look at its times anew.
func (f *Front) notifyLocked() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
