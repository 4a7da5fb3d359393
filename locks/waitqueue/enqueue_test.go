package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("broken") }

func panickingLogger() *slog.Logger { return slog.New(panicking{}) }

// Whether a ticket was drawn is not known when there is no answer: it is taken back, once.
func TestALostAnswerLeavesNoTicket(t *testing.T) {
	for name, test := range map[string]struct {
		script func(b *backend, cancel context.CancelFunc)
		want   error
		undone int
	}{
		"the answer is lost": {func(b *backend, _ context.CancelFunc) {
			b.after["Enqueue"] = func() error { return errDown }
		}, errDown, 1},
		"the context ends before the answer": {func(b *backend, cancel context.CancelFunc) {
			b.after["Enqueue"] = func() error { cancel(); return context.Canceled }
		}, context.Canceled, 1},
		"the context ends, and the driver does not heed it": {func(b *backend, cancel context.CancelFunc) {
			b.on("Enqueue", func(context.Context) error { cancel(); time.Sleep(time.Minute); return nil })
		}, context.Canceled, 2},
		"the call hangs": {func(b *backend, _ context.CancelFunc) {
			b.on("Enqueue", func(context.Context) error { time.Sleep(time.Minute); return nil })
		}, context.DeadlineExceeded, 2},
		"the backend panics": {func(b *backend, _ context.CancelFunc) {
			b.after["Enqueue"] = func() error { panic("broken") }
		}, nil, 1},
		"it is full":               {func(b *backend, _ context.CancelFunc) { b.after["Enqueue"] = refuse(locks.ErrQueueFull) }, locks.ErrQueueFull, 0},
		"it is busy":               {func(b *backend, _ context.CancelFunc) { b.after["Enqueue"] = refuse(locks.ErrBusy) }, locks.ErrBusy, 0},
		"the context ended before": {func(_ *backend, cancel context.CancelFunc) { cancel() }, context.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBackend()
				front := newFront(t, waitqueue.Config{Backend: b})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				test.script(b, cancel)
				start := time.Now()
				place, err := front.Enqueue(ctx, ask("r", "a"), 0)
				if err == nil || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("Enqueue = %v, %v; want %v", place, err, test.want)
				}
				if took := time.Since(start); took > waitqueue.DefaultCallLimit {
					t.Errorf("returned after %v", took)
				}
				time.Sleep(2 * time.Minute)
				if n := b.count("Dequeue"); n != test.undone {
					t.Errorf("%d times taken back, want %d", n, test.undone)
				}
				if n := b.tickets(); test.undone > 0 && n != 0 {
					t.Errorf("%d tickets are left", n)
				}
			})
		})
	}
}

func refuse(err error) func() error { return func() error { return err } }

// A retry whose answer is lost does not take away the ticket of the request that it repeats.
func TestALostAnswerLeavesTheTicketOfTheSameAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		front := newFront(t, waitqueue.Config{Backend: b})
		place := enqueue(t, front, "r", "a")
		b.after["Enqueue"] = refuse(errDown)
		if _, err := front.Enqueue(t.Context(), ask("r", "a"), 0); !errors.Is(err, errDown) {
			t.Errorf("Enqueue: %v", err)
		}
		if time.Sleep(time.Minute); place.Lapsed() || b.tickets() != 1 {
			t.Errorf("%d tickets, lapsed %v", b.tickets(), place.Lapsed())
		}
		leave(t, place)
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		front := newFront(t, waitqueue.Config{Backend: b})
		place := enqueue(t, front, "r", "a")
		if _, err := front.Enqueue(t.Context(), ask("r", "b"), 1); !errors.Is(err, locks.ErrQueueFull) {
			t.Errorf("Enqueue = %v, want %v", err, locks.ErrQueueFull)
		}
		leave(t, place)
	})
}

func TestLeaveEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBackend()
		front := newFront(t, waitqueue.Config{Backend: b})
		first, second := enqueue(t, front, "r", "a"), enqueue(t, front, "r", "b")
		b.on("Dequeue", func(context.Context) error { time.Sleep(time.Minute); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := first.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Leave = %v after %v", err, time.Since(start))
		}
		// What the call brings when it comes back is not lost, nor what nobody is told: the ticket ends by time.
		wait(t, second, waitqueue.DefaultTTL+time.Second)
		b.on("Dequeue", nil)
		leave(t, second)
	})
}

// Many that come, wait and give up at any instant, with a backend and a connection that are slow and fail, leave neither
// tickets nor goroutines, and whoever stays is called.
func TestRandomWaitersLeaveNothing(t *testing.T) {
	for seed := range uint64(5) {
		bubble(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			n := func(most int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(most)
			}
			b := newBackend()
			w := &waker{backend: b}
			front := newFront(t, waitqueue.Config{Backend: b, Waker: w})
			goroutines := runtime.NumGoroutine()
			for _, name := range []string{"Enqueue", "Look", "Keep", "Dequeue", "Announce"} {
				b.on(name, func(ctx context.Context) error {
					select {
					case <-time.After(time.Duration(n(20)) * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
					if name != "Dequeue" && n(10) == 0 {
						return errDown
					}
					return nil
				})
			}
			w.script = func(_ int, ctx context.Context, listening func(), heard func(string)) error {
				ctx, cancel := context.WithTimeout(ctx, time.Duration(n(10_000))*time.Millisecond)
				defer cancel()
				return w.listen(ctx, front.Channel(), listening, heard)
			}
			var all sync.WaitGroup
			for i := range 150 {
				all.Go(func() {
					time.Sleep(time.Duration(n(30_000)) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n(3_000))*time.Millisecond)
					defer cancel()
					stays := n(2) == 0
					if stays {
						ctx = t.Context()
					}
					place, err := front.Enqueue(ctx, ask(fmt.Sprint("r", n(5)), fmt.Sprint(i)), 0)
					if err != nil {
						return
					}
					for {
						select {
						case <-place.Turn():
							if n(3) > 0 && !place.Lapsed() {
								continue // refused
							}
						case <-ctx.Done():
						case <-time.After(10 * time.Minute):
							t.Errorf("seed %d: ticket %d is not called", seed, place.Waiter().Number)
						}
						break
					}
					_ = place.Leave(t.Context())
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			wantGoroutines(t, goroutines)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, ticket := range b.rows {
				if time.Now().Before(ticket.ends) {
					t.Errorf("seed %d: ticket %d is kept", seed, ticket.number)
				}
			}
		})
	}
}
