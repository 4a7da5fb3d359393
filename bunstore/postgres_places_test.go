package bunstore

import (
	"context"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

type noPlace struct{ locks.Place }

func (noPlace) Served()                     {}
func (noPlace) Leave(context.Context) error { return nil }

// However places end, nothing is left of them.
func TestWaitingHereCountsPlaces(t *testing.T) {
	t.Parallel()
	var w waitingHere
	r := locks.Request{Resource: "r", Owner: "w", Attempt: "a"}
	first, second := w.add(r, noPlace{}), w.add(r, noPlace{})
	first.Served()
	_ = first.Leave(t.Context()) // it is one place
	if !w.has(r) {
		t.Error("the other place of the attempt is forgotten")
	}
	if other := (locks.Request{Resource: "r", Owner: "w", Attempt: "b"}); w.has(other) {
		t.Error("another attempt is taken for it")
	}
	if err := second.Leave(t.Context()); err != nil || w.has(r) || len(w.places) != 0 {
		t.Errorf("left behind: %v (%v)", w.places, err)
	}
}
