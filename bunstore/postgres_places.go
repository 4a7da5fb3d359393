package bunstore

import (
	"context"
	"sync"

	"github.com/rowlease/rowlease/locks"
)

// waitingHere is which attempts have a place here: their acquires begin with the statement for those who wait. Nothing
// depends on it but the number of statements. It is safe for concurrent use.
type waitingHere struct {
	mu     sync.Mutex
	places map[attempt]int // how many each has
}

// attempt is the identity of a ticket.
type attempt struct{ resource, owner, name string }

func (w *waitingHere) has(r locks.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.places[attempt{r.Resource, r.Owner, r.Attempt}] > 0
}

// add counts a place until whoever was given it is done with it, however that comes: the ticket itself may end by a grant in
// a transaction, or by time.
func (w *waitingHere) add(r locks.Request, place locks.Place) locks.Place {
	who := attempt{r.Resource, r.Owner, r.Attempt}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places == nil {
		w.places = make(map[attempt]int)
	}
	w.places[who]++
	return &countedPlace{Place: place, done: sync.OnceFunc(func() { w.drop(who) })}
}

func (w *waitingHere) drop(who attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[who]--; w.places[who] == 0 {
		delete(w.places, who)
	}
	if len(w.places) == 0 {
		w.places = nil // a map keeps the room of what it once had
	}
}

// countedPlace tells when it is given up.
type countedPlace struct {
	locks.Place
	done func()
}

func (p *countedPlace) Served() {
	p.done()
	p.Place.Served()
}

func (p *countedPlace) Leave(ctx context.Context) error {
	p.done()
	return p.Place.Leave(ctx)
}
