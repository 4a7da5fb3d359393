package waitqueue_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

func TestNothingRunsWhileNobodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		front := newFront(t, waitqueue.Config{Backend: b})
		before := runtime.NumGoroutine()
		for range 3 {
			places := []locks.Place{enqueue(t, front, "r", "a"), enqueue(t, front, "r", "b"), enqueue(t, front, "s", "c")}
			time.Sleep(time.Minute)
			leave(t, places...)
			synctest.Wait()
			wantGoroutines(t, before)
			calls := b.count()
			time.Sleep(time.Hour)
			if n := b.count(); n != calls {
				t.Errorf("%d calls while nobody waited", n-calls)
			}
		}
	})
}

func TestAllTicketsAreKeptTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		b.hold("r", time.Hour)
		front := newFront(t, waitqueue.Config{Backend: b})
		var places []locks.Place
		for i := range 2500 {
			places = append(places, enqueue(t, front, "r", strconv.Itoa(i)))
		}
		time.Sleep(10*time.Minute + time.Second)
		if n, most := b.count("Keep"), b.most["Keep"]; n != 3*120 || most > 1000 {
			t.Errorf("kept by %d statements of at most %d tickets, want 360 of at most 1000", n, most)
		}
		if most := b.most["Look"]; most != 1 {
			t.Errorf("looked at %d tickets of one resource, want the first", most)
		}
		for _, place := range places {
			if place.Lapsed() {
				t.Fatalf("ticket %d has lapsed", place.Waiter().Number)
			}
			place.Served()
		}
	})
}

// Only what was asked about can have ended.
func TestATicketDrawnDuringAKeepStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		b.hold("r", time.Hour)
		front := newFront(t, waitqueue.Config{Backend: b})
		first := enqueue(t, front, "r", "a")
		b.on("Keep", func(context.Context) error { time.Sleep(2 * time.Second); return nil })
		time.Sleep(6 * time.Second) // a second into the keep
		second := enqueue(t, front, "r", "b")
		time.Sleep(time.Hour / 2)
		if first.Lapsed() || second.Lapsed() {
			t.Errorf("lapsed: %v, %v", first.Lapsed(), second.Lapsed())
		}
		leave(t, first, second)
	})
}

func TestAHangingKeepDoesNotStopTheLooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		b.hold("r", time.Hour)
		front := newFront(t, waitqueue.Config{Backend: b})
		place := enqueue(t, front, "r", "a")
		b.on("Keep", hang(24*time.Hour))
		time.Sleep(7 * time.Second)
		b.hold("r", 0)
		if waited := wait(t, place, time.Minute); waited > 5*time.Second || place.Lapsed() {
			t.Errorf("called after %v, lapsed %v; want within a call's limit, before it lapses", waited, place.Lapsed())
		}
		leave(t, place)
	})
}

func TestAHangingLookDoesNotStopTheKeeps(t *testing.T) {
	for _, ttl := range []time.Duration{waitqueue.DefaultTTL, time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				b.on("Look", hang(time.Hour))
				front := newFront(t, waitqueue.Config{Backend: b, TTL: ttl})
				places := []locks.Place{enqueue(t, front, "r", "a"), enqueue(t, front, "s", "b")}
				time.Sleep(5 * time.Minute)
				for _, place := range places {
					if place.Lapsed() {
						t.Error("lapsed, though keeps succeed")
					}
				}
				leave(t, places...)
			})
		})
	}
}

func TestAKeepThatFailedIsTriedAgainInTime(t *testing.T) {
	for name, test := range map[string]struct {
		down   time.Duration
		lapsed bool
	}{"for less than the TTL": {13 * time.Second, false}, "for longer": {16 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				b.hold("r", time.Hour)
				front := newFront(t, waitqueue.Config{Backend: b})
				place := enqueue(t, front, "r", "a")
				for _, name := range []string{"Keep", "Look"} {
					b.on(name, fail)
				}
				time.Sleep(test.down)
				for _, name := range []string{"Keep", "Look"} {
					b.on(name, nil)
				}
				time.Sleep(10 * time.Second)
				if place.Lapsed() != test.lapsed {
					t.Errorf("lapsed: %v, want %v", place.Lapsed(), test.lapsed)
				}
				leave(t, place)
			})
		})
	}
}

// A process that was suspended finds its tickets ended. Those that wait are told, and nothing runs for them any more.
func TestPlacesLapseWhileTheProcessDoesNotRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		b.hold("r", 24*time.Hour)
		front := newFront(t, waitqueue.Config{Backend: b})
		places := []locks.Place{enqueue(t, front, "r", "a"), enqueue(t, front, "r", "b"), enqueue(t, front, "s", "c")}
		time.Sleep(time.Minute)
		for _, place := range places { // s was free all the time
			select {
			case <-place.Turn():
			default:
			}
		}
		b.mu.Lock()
		b.late = time.Hour
		b.mu.Unlock()
		time.Sleep(waitqueue.DefaultTTL/3 + time.Second)
		for _, place := range places {
			if wait(t, place, time.Second); !place.Lapsed() {
				t.Errorf("ticket %d has not lapsed", place.Waiter().Number)
			}
		}
		calls := b.count()
		time.Sleep(time.Hour)
		leave(t, places...)
		if n := b.count(); n != calls {
			t.Errorf("%d calls for places that have lapsed", n-calls)
		}
		again := enqueue(t, front, "r", "a")
		if again.Waiter().Number <= places[2].Waiter().Number || again.Lapsed() {
			t.Errorf("queued again as %+v", again.Waiter())
		}
		leave(t, again)
	})
}

// counting is a backend without a memory, so that what is left is the front's.
type counting struct{ backend }

func (c *counting) Enqueue(_ context.Context, r locks.Request, _ time.Duration, _ string, _ int) (locks.Waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return locks.Waiter{Resource: r.Resource, Owner: r.Owner, Number: c.last}, nil
}

func (c *counting) Dequeue(context.Context, string, string, string) (int64, error) { return 0, nil }

func (c *counting) Keep(_ context.Context, tickets []int64, _ time.Duration, _ string) ([]int64, error) {
	return tickets, nil
}

func (c *counting) Look(_ context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	sights := make([]waitqueue.Sight, len(tickets))
	for i, ticket := range tickets {
		sights[i] = waitqueue.Sight{Number: ticket.Number, After: time.Hour}
	}
	return sights, nil
}

func TestAHundredThousandResourcesLeaveNothing(t *testing.T) {
	const many = 100_000
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	for name, together := range map[string]int{"one after the other": 1, "at once": many} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				front := newFront(t, waitqueue.Config{Backend: new(counting)})
				goroutines, before := runtime.NumGoroutine(), heap()
				for i := range many / together {
					places := make([]locks.Place, together)
					for j := range places {
						places[j] = enqueue(t, front, fmt.Sprint("r", i, " ", j), "a")
					}
					for _, place := range places {
						place.Served()
					}
				}
				synctest.Wait()
				wantGoroutines(t, goroutines)
				if left := heap() - before; left > 1<<20 {
					t.Errorf("%d bytes are left", left)
				}
				runtime.KeepAlive(front)
			})
		})
	}
}
