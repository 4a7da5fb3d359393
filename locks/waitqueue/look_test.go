package waitqueue_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

func TestTheEndOfALeaseIsNotMissed(t *testing.T) {
	for name, config := range map[string]waitqueue.Config{"polling": {}, "hearing": {Waker: new(waker)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				config.Backend = b
				if w, ok := config.Waker.(*waker); ok {
					w.backend = b
				}
				front := newFront(t, config)
				for _, d := range []time.Duration{10 * time.Millisecond, 700 * time.Millisecond, 3 * time.Second, time.Minute} {
					b.hold("r", d)
					start := time.Now()
					place := enqueue(t, front, "r", "a")
					if wait(t, place, time.Hour); d >= waitqueue.DefaultMaxPoll && time.Since(start) > d+10*time.Millisecond {
						t.Errorf("called %v after a lease that lasted %v", time.Since(start), d)
					} else if time.Since(start) > d+waitqueue.DefaultMaxPoll {
						t.Errorf("called %v after a lease that lasted %v", time.Since(start), d)
					}
					leave(t, place)
				}
			})
		})
	}
}

// The waiter was told, and was refused all the same: it is told again.
func TestATurnIsToldUntilItIsTaken(t *testing.T) {
	for name, config := range map[string]waitqueue.Config{"polling": {}, "hearing": {Waker: new(waker)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				config.Backend = b
				if w, ok := config.Waker.(*waker); ok {
					w.backend = b
				}
				front := newFront(t, config)
				first, second := enqueue(t, front, "r", "a"), enqueue(t, front, "r", "b")
				for range 20 {
					if waited := wait(t, first, time.Minute); waited > 2*time.Second {
						t.Errorf("told again after %v", waited)
					}
				}
				select {
				case <-second.Turn():
					t.Error("the second one is called")
				default:
				}
				leave(t, first) // which makes it the turn of the next one, at once
				if waited := wait(t, second, time.Minute); waited != 0 {
					t.Errorf("the second one is called after %v", waited)
				}
				leave(t, second)
			})
		})
	}
}

func TestLooksAreTakenTogether(t *testing.T) {
	for _, test := range []struct{ resources, looks, most int }{
		{1, 2 * 20, 1}, {300, 40 * 20, 300}, {1200, 20 * 20, 500},
	} {
		t.Run(strconv.Itoa(test.resources), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				front := newFront(t, waitqueue.Config{Backend: b})
				var places []locks.Place
				for i := range test.resources {
					resource := strconv.Itoa(i)
					b.hold(resource, time.Hour)
					places = append(places, enqueue(t, front, resource, resource))
					if i < 500 { // the rest are due together
						time.Sleep(time.Millisecond)
					}
				}
				time.Sleep(10 * time.Second)
				looks := b.count("Look")
				time.Sleep(20 * time.Second)
				if n, most := b.count("Look")-looks, b.most["Look"]; n > test.looks || most > test.most {
					t.Errorf("%d looks in 20 s, at %d at most; want %d, at %d", n, most, test.looks, test.most)
				}
				b.hold("0", 0)
				wait(t, places[0], 10*time.Second)
				for _, place := range places {
					place.Served()
				}
			})
		})
	}
}

// In no state it asks without a pause: the bounds are for an hour.
func TestNoBusyLoop(t *testing.T) {
	const hour = time.Hour
	always := func(sight waitqueue.Sight) func(waitqueue.Sight) waitqueue.Sight {
		return func(s waitqueue.Sight) waitqueue.Sight { sight.Number = s.Number; return sight }
	}
	for name, test := range map[string]struct {
		script  func(b *backend)
		polling int
		hearing int
	}{
		"held":                {func(b *backend) { b.hold("r", 2*hour) }, 3600 * 2, 720 + 10},
		"free, not taken":     {func(*backend) {}, 3600 * 2, 3600 * 2},
		"held, until unknown": {func(b *backend) { b.sights = always(waitqueue.Sight{}) }, 3600 * 2, 3600 * 2},
		"always about to end": {func(b *backend) { b.sights = always(waitqueue.Sight{After: 1}) }, 3600 * 40, 3600 * 40},
		"renewed each second": {func(b *backend) { b.sights = always(waitqueue.Sight{After: time.Second}) }, 3600 * 2, 3600 + 10},
		"looks fail":          {func(b *backend) { b.on("Look", fail) }, 3600 * 2, 3600 * 2},
		"looks hang":          {func(b *backend) { b.on("Look", hang(time.Minute)) }, 3600 * 2, 3600 * 2},
		"all fails": {func(b *backend) {
			for _, name := range []string{"Look", "Keep", "Dequeue", "Announce"} {
				b.on(name, fail)
			}
		}, 3600 * 2, 3600 * 2},
	} {
		for mode, most := range map[string]int{"polling": test.polling, "hearing": test.hearing} {
			t.Run(name+", "+mode, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := newBackend()
					config := waitqueue.Config{Backend: b}
					if mode == "hearing" {
						config.Waker = &waker{backend: b}
					}
					front := newFront(t, config)
					test.script(b)
					place := enqueue(t, front, "r", "a")
					time.Sleep(hour)
					if n := b.count("Look"); n > most+10 || n < 60 {
						t.Errorf("%d looks in an hour, want at most %d", n, most)
					}
					if n := b.count("Keep"); n > 3600 && !place.Lapsed() {
						t.Errorf("%d keeps in an hour", n)
					}
					if n := b.count("Announce"); n > 730 {
						t.Errorf("%d announcements in an hour", n)
					}
					_ = place.Leave(t.Context())
				})
			})
		}
	}
}

// The first one of a queue that has waited for long is looked at soon after it became that.
func TestTheNextOneIsLookedAtSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		b.hold("r", time.Hour)
		front := newFront(t, waitqueue.Config{Backend: b})
		first, second := enqueue(t, front, "r", "a"), enqueue(t, front, "r", "b")
		time.Sleep(10 * time.Minute)
		b.on("Dequeue", fail) // so that nobody is told by that
		b.mu.Lock()
		b.held["r"] = time.Time{}
		b.rows = b.rows[1:]
		b.mu.Unlock()
		first.Served()
		if waited := wait(t, second, time.Minute); waited > waitqueue.DefaultMinPoll {
			t.Errorf("called after %v", waited)
		}
		second.Served()
		synctest.Wait()
	})
}

func TestALookThatPanicsIsAFault(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		for _, name := range []string{"Look", "Keep", "Dequeue"} {
			b.on(name, func(context.Context) error { panic("broken") })
		}
		front := newFront(t, waitqueue.Config{Backend: b})
		place := enqueue(t, front, "r", "a")
		time.Sleep(10 * time.Second)
		b.on("Look", nil)
		wait(t, place, 2*time.Second)
		if place.Leave(t.Context()) == nil {
			t.Error("Leave has no error")
		}
	})
}
