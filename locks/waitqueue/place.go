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
	drawn   time.Time // before the ticket was asked for; a keep that began earlier says nothing of it
	others  int       // how many wait here besides the first, under the front's mutex
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
func (f *Front) join(waiter locks.Waiter, request locks.Request, drawn time.Time) *place {
	p := &place{front: f, waiter: waiter, request: request, turn: make(chan struct{}, 1), drawn: drawn}
	f.mu.Lock()
	defer f.mu.Unlock()
	if same := f.places[waiter.Number]; same != nil {
		same.others++
		return same
	}
	l := f.lines[waiter.Resource]
	if l == nil {
		l = &line{resource: waiter.Resource}
		f.lines[waiter.Resource] = l
	}
	at, _ := slices.BinarySearchFunc(l.places, waiter.Number, func(p *place, number int64) int {
		return cmp.Compare(p.waiter.Number, number)
	})
	l.places = slices.Insert(l.places, at, p)
	f.places[waiter.Number] = p
	if at == 0 {
		f.lookSoonLocked(l)
	}
	f.startLocked()
	return p
}

// part takes a place out, and reports whether it was there.
func (f *Front) part(p *place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partLocked(p)
}

func (f *Front) partLocked(p *place) bool {
	if f.places[p.waiter.Number] != p {
		return false
	}
	delete(f.places, p.waiter.Number)
	l := f.lines[p.waiter.Resource]
	at := slices.Index(l.places, p)
	if at == 0 {
		l.places[0] = nil
		l.places = l.places[1:]
	} else {
		l.places = slices.Delete(l.places, at, at+1)
	}
	switch {
	case len(l.places) == 0:
		delete(f.lines, l.resource)
		if len(f.places) == 0 {
			f.notifyLocked()
		}
	case at == 0:
		f.lookSoonLocked(l)
	}
	return true
}

// lookSoonLocked makes the first place of a line be looked at: not at once, since its waiter acquires by itself when it
// has been told.
func (f *Front) lookSoonLocked(l *line) {
	l.pause = f.config.MinPoll
	wait := f.config.MinPoll
	if f.ear.hears { // a look finds out when to look again; while turns follow each other, none is needed
		wait = f.config.MaxPoll
	}
	l.lookAt = time.Now().Add(wait)
	f.notifyLocked()
}

// notifyLocked makes the goroutine look at its times anew.
func (f *Front) notifyLocked() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}
