package waitqueue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// rowsInOrder is a backend of one resource that is free all the time: the turn is the first one's.
type rowsInOrder struct {
	mu      sync.Mutex
	last    int64
	tickets []locks.Waiter
	attempt map[int64]string
}

func (b *rowsInOrder) Enqueue(_ context.Context, request locks.Request, ttl time.Duration, _ string, _ int) (locks.Waiter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ticket := range b.tickets {
		if b.attempt[ticket.Number] == request.Attempt {
			return ticket, nil
		}
	}
	b.last++
	ticket := locks.Waiter{Resource: request.Resource, Owner: request.Owner, Number: b.last, ExpiresAt: time.Now().Add(ttl)}
	b.tickets = append(b.tickets, ticket)
	b.attempt[ticket.Number] = request.Attempt
	return ticket, nil
}

func (b *rowsInOrder) Dequeue(_ context.Context, _, _, attempt string) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tickets = slices.DeleteFunc(b.tickets, func(ticket locks.Waiter) bool { return b.attempt[ticket.Number] == attempt })
	return 0, nil
}

func (b *rowsInOrder) Keep(_ context.Context, tickets []int64, _ time.Duration, _ string) ([]int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var kept []int64
	for _, ticket := range b.tickets {
		if slices.Contains(tickets, ticket.Number) {
			kept = append(kept, ticket.Number)
		}
	}
	return kept, nil
}

func (b *rowsInOrder) Look(_ context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sights []waitqueue.Sight
	for i, ticket := range b.tickets {
		if slices.Contains(tickets, waitqueue.Ticket{Resource: ticket.Resource, Number: ticket.Number}) {
			sights = append(sights, waitqueue.Sight{Number: ticket.Number, Turn: i == 0})
		}
	}
	return sights, nil
}

// Two that wait for the same attempt, a request and its retry, have one ticket: the one that leaves does not take it away
// from the other, and neither stands in the way of who comes later.
func TestTheSameAttemptWaitsTwice(t *testing.T) {
	for name, test := range map[string]struct {
		first func(t *testing.T, place locks.Place, backend *rowsInOrder)
		turn  bool // the other one has its ticket, and its turn, still
	}{
		"the first leaves": {func(t *testing.T, place locks.Place, _ *rowsInOrder) {
			t.Helper()
			if err := place.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}, true},
		"the first is served": {func(t *testing.T, place locks.Place, backend *rowsInOrder) {
			t.Helper()
			_, _ = backend.Dequeue(t.Context(), "", "", "k1") // as the acquire does
			place.Served()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backend := &rowsInOrder{attempt: map[int64]string{}}
				front, err := waitqueue.NewFront(waitqueue.Config{Backend: backend})
				if err != nil {
					t.Fatal(err)
				}
				enqueue := func(attempt string) locks.Place {
					place, err := front.Enqueue(t.Context(), locks.Request{Resource: "r", Owner: "w", Attempt: attempt}, 0)
					if err != nil {
						t.Fatal(err)
					}
					return place
				}
				turn := func(place locks.Place, who string) {
					select {
					case <-place.Turn():
					case <-time.After(time.Minute):
						t.Fatalf("%s is not called", who)
					}
				}
				first, again := enqueue("k1"), enqueue("k1")
				turn(first, "the first") // and the turn is gone with it, unless it is told on
				test.first(t, first, backend)
				turn(again, "the second")
				if again.Lapsed() == test.turn && test.turn {
					t.Error("the second one has lost the ticket")
				}
				if err := again.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				later := enqueue("k2")
				turn(later, "who comes later")
				later.Served()
			})
		})
	}
}
