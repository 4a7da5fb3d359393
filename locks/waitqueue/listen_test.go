package waitqueue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// heard is a front with a waker on a resource that is held for days.
func heard(t *testing.T) (*waitqueue.Front, *backend, *waker, *logbook) {
	t.Helper()
	b, book := newBackend(), new(logbook)
	b.hold("r", 100*time.Hour)
	w := &waker{backend: b}
	return newFront(t, waitqueue.Config{Backend: b, Waker: w, Logger: book.logger()}), b, w, book
}

func TestATurnThatIsHeardNeedsNoLook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, w, book := heard(t)
		place := enqueue(t, front, "r", "a")
		time.Sleep(10*time.Minute + time.Second)
		if n := b.count("Look"); n > 2*60+3 {
			t.Errorf("%d looks in ten minutes, want one each third of the TTL", n)
		}
		looks := b.count("Look")
		b.release("r")
		if waited := wait(t, place, time.Minute); waited != 0 || b.count("Look") != looks {
			t.Errorf("called after %v and %d looks", waited, b.count("Look")-looks)
		}
		leave(t, place)
		if dials, _, _ := w.count(); dials != 1 || book.count("WARN") != 0 {
			t.Errorf("%d connections, %d warnings; want 1 and none", dials, book.count("WARN"))
		}
	})
}

// With every announcement lost, and unnoticed, all have their turn.
func TestATurnThatIsNotHeardIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, _, _ := heard(t)
		place := enqueue(t, front, "r", "a")
		time.Sleep(time.Minute)
		b.hold("r", 0)
		if waited := wait(t, place, time.Minute); waited > waitqueue.DefaultTTL/3 {
			t.Errorf("called after %v", waited)
		}
		leave(t, place)
	})
}

func TestTheConnectionLingers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, w, _ := heard(t)
		leave(t, enqueue(t, front, "r", "a"))
		synctest.Wait()
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			leave(t, enqueue(t, front, "r", "a"))
		}
		place := enqueue(t, front, "r", "a")
		time.Sleep(4 * time.Second)
		leave(t, place)
		synctest.Wait()
		calls := b.count("Keep", "Look")
		time.Sleep(time.Second - 1)
		if dials, open, _ := w.count(); dials != 1 || open != 1 {
			t.Errorf("%d connections made, %d open; want the one", dials, open)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if dials, open, _ := w.count(); dials != 1 || open != 0 {
			t.Errorf("%d connections made, %d open a second after the last waiter", dials, open)
		}
		if n := b.count("Keep", "Look"); n != calls {
			t.Errorf("%d calls while nobody waited", n-calls)
		}
		place = enqueue(t, front, "r", "a")
		synctest.Wait()
		b.release("r")
		if waited := wait(t, place, time.Minute); waited != 0 {
			t.Errorf("called after %v", waited)
		}
		leave(t, place)
		if dials, _, _ := w.count(); dials != 2 {
			t.Errorf("%d connections made, want a second one", dials)
		}
	})
}

// Waiters come and go about when the connection is closed: there is never a second one, and each waiter is served.
func TestWaitersWhileTheConnectionCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, w, _ := heard(t)
		w.script = func(_ int, ctx context.Context, listening func(), heard func(string)) error {
			err := w.listen(ctx, front.Channel(), listening, heard)
			time.Sleep(rand.N(100 * time.Millisecond)) // it takes its time to close
			return err
		}
		for i := range 300 {
			b.hold("r", 100*time.Hour)
			place := enqueue(t, front, "r", fmt.Sprint(i))
			time.Sleep(rand.N(50 * time.Millisecond))
			b.release("r")
			wait(t, place, 6*time.Second)
			leave(t, place)
			time.Sleep(time.Second + rand.N(3*time.Nanosecond) - 1)
		}
		if _, _, top := w.count(); top != 1 {
			t.Errorf("%d connections at once", top)
		}
	})
}

func TestWithoutAnEchoItPolls(t *testing.T) {
	for name, script := range map[string]func(*backend, *waker){
		"nothing arrives": func(_ *backend, w *waker) {
			w.script = func(_ int, ctx context.Context, listening func(), _ func(string)) error {
				listening()
				<-ctx.Done()
				return ctx.Err()
			}
		},
		"nonsense arrives": func(_ *backend, w *waker) {
			w.script = func(_ int, ctx context.Context, listening func(), heard func(string)) error {
				listening()
				for ctx.Err() == nil {
					for _, payload := range []string{"", "x", "-1", "0", "echo 1", "99999999999999999999", "1 2", "7"} {
						heard(payload)
					}
					time.Sleep(time.Second)
				}
				return ctx.Err()
			}
		},
		"nothing can be announced": func(b *backend, _ *waker) { b.on("Announce", fail) },
		"announcing hangs":         func(b *backend, _ *waker) { b.on("Announce", hang(24*time.Hour)) },
		"it never listens": func(_ *backend, w *waker) {
			w.script = func(_ int, ctx context.Context, _ func(), _ func(string)) error { <-ctx.Done(); return ctx.Err() }
		},
		"it cannot be ended": func(_ *backend, w *waker) {
			w.script = func(int, context.Context, func(), func(string)) error { time.Sleep(24 * time.Hour); return errDown }
		},
		"it returns at once": func(_ *backend, w *waker) {
			w.script = func(_ int, _ context.Context, listening func(), _ func(string)) error { listening(); return errDown }
		},
		"it hears and is cut, again and again": func(_ *backend, w *waker) {
			w.script = func(_ int, _ context.Context, listening func(), heard func(string)) error {
				listening()
				heard("echo")
				time.Sleep(time.Second)
				return errDown
			}
		},
		"it panics": func(_ *backend, w *waker) {
			w.script = func(int, context.Context, func(), func(string)) error { panic("broken") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				front, b, w, book := heard(t)
				script(b, w)
				place := enqueue(t, front, "r", "a")
				time.Sleep(time.Hour)
				if n := b.count("Look"); n > 2*3600 {
					t.Errorf("%d looks in an hour", n)
				}
				dials, _, top := w.count()
				if dials > 260 || top != 1 {
					t.Errorf("%d connections in an hour, %d at once", dials, top)
				}
				if name != "it hears and is cut, again and again" && book.count("WARN") != 1 {
					t.Errorf("%d warnings, want one", book.count("WARN"))
				}
				time.Sleep(3 * time.Second)
				b.hold("r", 0)
				if waited := wait(t, place, time.Minute); waited > waitqueue.DefaultMaxPoll {
					t.Errorf("called after %v, want as soon as by polling", waited)
				}
				leave(t, place)
				for i := range 20 { // it is known by now
					place := enqueue(t, front, "s", fmt.Sprint(i))
					time.Sleep(10 * time.Second)
					leave(t, place)
					time.Sleep(10 * time.Second)
				}
				if name != "it hears and is cut, again and again" && book.count("WARN") != 1 {
					t.Errorf("%d warnings, want one", book.count("WARN"))
				}
			})
		})
	}
}

func TestWhatWasMissedIsCaughtUpWith(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, w, book := heard(t)
		start, cut := time.Now(), make(chan struct{})
		w.script = func(n int, ctx context.Context, listening func(), heard func(string)) error {
			if n == 1 {
				ctx, cancel := context.WithCancel(ctx)
				go func() { <-cut; cancel() }()
				_ = w.listen(ctx, front.Channel(), listening, heard)
				return errDown
			}
			if time.Since(start) < 20*time.Minute { // the server is away
				return errDown
			}
			return w.listen(ctx, front.Channel(), listening, heard)
		}
		place := enqueue(t, front, "r", "a")
		time.Sleep(time.Minute + time.Second)
		b.mu.Lock()
		b.sights = func(s waitqueue.Sight) waitqueue.Sight { s.Turn = false; return s } // no poll shall find it
		b.mu.Unlock()
		looks := b.count("Look")
		close(cut)
		time.Sleep(time.Millisecond)
		if n := b.count("Look"); n != looks+1 {
			t.Errorf("%d looks when the connection was cut, want one at once", n-looks)
		}
		time.Sleep(10 * time.Minute)
		if n := b.count("Look"); n < looks+600 {
			t.Errorf("%d looks in ten minutes without a connection, want that it polls", n-looks)
		}
		var looked atomic.Int64 // when it did last
		b.on("Look", func(context.Context) error { looked.Store(time.Now().UnixNano()); return nil })
		again := time.Now()
		for range 30 * 60 * 1000 {
			if time.Sleep(time.Millisecond); book.count("INFO") == 1 {
				break
			}
			again = time.Now()
		}
		time.Sleep(time.Millisecond)
		if last := time.Unix(0, looked.Load()); last.Before(again) {
			t.Errorf("looked %v before the connection was there again, and not then", again.Sub(last))
		}
		if book.count("WARN") != 1 || book.count("INFO") != 1 {
			t.Errorf("%d warnings, %d all-clears; want one of each", book.count("WARN"), book.count("INFO"))
		}
		looks = b.count("Look")
		time.Sleep(time.Minute)
		if n := b.count("Look") - looks; n > 12+2 {
			t.Errorf("%d looks in a minute though it hears again", n)
		}
		leave(t, place)
	})
}

// What an old connection hears late shows nothing about the new one.
func TestTheEchoOfAnOldConnectionIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		front, b, w, _ := heard(t)
		w.script = func(n int, ctx context.Context, listening func(), heard func(string)) error {
			listening()
			if n == 1 {
				go func() {
					for range 1000 {
						time.Sleep(time.Second)
						heard("echo")
					}
				}()
				return errDown
			}
			<-ctx.Done()
			return ctx.Err()
		}
		place := enqueue(t, front, "r", "a")
		time.Sleep(10 * time.Minute)
		if n := b.count("Look"); n < 600 {
			t.Errorf("%d looks in ten minutes, want that it polls", n)
		}
		leave(t, place)
	})
}

// Waits that are short find a deaf connection out as well.
func TestAConnectionThatGoesDeafIsFoundOut(t *testing.T) {
	for name, short := range map[string]bool{"one long wait": false, "many short ones": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				front, b, w, book := heard(t)
				place := enqueue(t, front, "r", "a")
				time.Sleep(time.Minute)
				b.mu.Lock()
				clear(b.notified)
				b.mu.Unlock()
				for i := range 11 {
					if time.Sleep(time.Second); short {
						leave(t, place)
						place = enqueue(t, front, "r", fmt.Sprint(i))
					}
				}
				time.Sleep(time.Second)
				if dials, open, _ := w.count(); dials != 2 || open != 1 || book.count("WARN") != 1 {
					t.Errorf("%d connections made, %d open, %d warnings; want a new one", dials, open, book.count("WARN"))
				}
				leave(t, place)
			})
		})
	}
}

func TestALoggerThatPanicsHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		w := &waker{backend: b, script: func(int, context.Context, func(), func(string)) error { return errDown }}
		front := newFront(t, waitqueue.Config{Backend: b, Waker: w, Logger: panickingLogger()})
		b.on("Keep", fail)
		place := enqueue(t, front, "r", "a")
		time.Sleep(10 * time.Second)
		wait(t, place, time.Second)
		leave(t, place)
	})
}

var _ locks.Waker = (*waker)(nil)
