package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Whenever a waiter is cancelled, its ticket is gone at once, and what it may have been granted is free for the next one.
func TestACancelledWaiterLeavesNothing(t *testing.T) {
	type script struct {
		store  *queueStore
		holder *locks.Lease
		cancel context.CancelFunc
	}
	release := func(s script) { _ = s.holder.Release(context.Background()) }
	for name, set := range map[string]func(s script){
		"while it waits": func(s script) { time.AfterFunc(time.Second, s.cancel) },
		"before it queues": func(s script) {
			s.store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				s.cancel()
				return call()
			}
		},
		"when it has queued": func(s script) {
			s.store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				defer s.cancel()
				return call()
			}
		},
		"while the answer is under way": func(s script) {
			s.store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				defer time.Sleep(time.Second)
				defer s.cancel()
				return call()
			}
		},
		"before the ticket is drawn, late": func(s script) {
			s.store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				s.cancel()
				time.Sleep(time.Second)
				return call()
			}
		},
		"when it is free": func(s script) { time.AfterFunc(time.Second, func() { release(s); s.cancel() }) },
		"just before it is free": func(s script) {
			time.AfterFunc(time.Second, func() { s.cancel(); release(s) })
		},
		"in the instant of the grant": func(s script) {
			s.store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
				lock, err := call()
				if err == nil {
					s.cancel()
					time.Sleep(time.Second)
				}
				return lock, err
			}
			time.AfterFunc(time.Second, func() { release(s) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueueStore()
				locker := newLocker(t, store)
				holder := tryAcquire(t, locker, "job")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				set(script{store, holder, cancel})
				lease, err := locker.Acquire(ctx, "job")
				switch {
				case err == nil:
					wantHeldBy(t, store, lease)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, context.Canceled):
					t.Errorf("Acquire: %v", err)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				wantNoTickets(t, store)
				release(script{holder: holder})
				wantFree(t, store, "job")
			})
		})
	}
}

// Close ends those who wait, and has given their places up when it returns, however slow the queue is.
func TestCloseWaitsForPlacesToBeGivenUp(t *testing.T) {
	for name, set := range map[string]func(store *queueStore, cancel context.CancelFunc){
		"those who wait": func(store *queueStore, _ context.CancelFunc) {
			store.onLeave = func(call func() error) error { time.Sleep(3 * time.Second); return call() }
		},
		"one whose ticket is being drawn": func(store *queueStore, cancel context.CancelFunc) {
			store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				cancel()
				time.Sleep(3 * time.Second)
				return call()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueueStore()
				locker := newLocker(t, store)
				other := newLocker(t, store)
				tryAcquire(t, other, "job")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				set(store, cancel)
				ended := make(chan error)
				go func() {
					_, err := locker.Acquire(ctx, "job")
					ended <- err
				}()
				synctest.Wait()
				go func() {
					if err := <-ended; !errors.Is(err, locks.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Errorf("Acquire: %v", err)
					}
				}()
				start := time.Now()
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if waited := time.Since(start); waited != 3*time.Second {
					t.Errorf("Close returned after %v", waited)
				}
				wantNoTickets(t, store)
			})
		})
	}
}

// A turn that comes when the locker closes is the next one's.
func TestCloseGivesTheTurnToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			store := newQueueStore()
			locker, other := newLocker(t, store), newLocker(t, store)
			holder := tryAcquire(t, other, "job")
			ended, got := make(chan error, 1), make(chan *locks.Lease, 1)
			go func() {
				lease, err := locker.Acquire(t.Context(), "job")
				if err == nil { // it was faster
					err = errors.Join(lease.Release(t.Context()), locks.ErrClosed)
				}
				ended <- err
			}()
			synctest.Wait()
			go func() {
				lease, _ := other.Acquire(t.Context(), "job")
				got <- lease
			}()
			synctest.Wait()
			acquires := store.acquires.Load()
			closing := make(chan error, 1)
			go func() { closing <- locker.Close(t.Context()) }()
			if err := holder.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, locks.ErrClosed) {
				t.Fatalf("Acquire: %v", err)
			}
			start := time.Now()
			if err := (<-got).Release(t.Context()); err != nil || time.Since(start) > time.Second {
				t.Errorf("the next one: %v, after %v", err, time.Since(start))
			}
			if err := <-closing; err != nil {
				t.Error(err)
			}
			if n := store.acquires.Load() - acquires; n > 2 {
				t.Errorf("%d acquires", n)
			}
			wantNoTickets(t, store)
		}
	})
}

// Hundreds that wait in two processes and give up at any instant, over a store that is slow and fails, leave no ticket, no
// lease and no goroutine.
func TestRandomWaitersLeaveNothing(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 5))
			n := func(most int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(most)
			}
			ms := func(most int) time.Duration { return time.Duration(n(most)) * time.Millisecond }
			store := newQueueStore()
			// An answer comes late, not at all, or before the request was carried out.
			store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
				time.Sleep(ms(10))
				lock, err := call()
				if n(20) == 0 {
					return locks.Lock{}, errFault
				}
				time.Sleep(ms(10))
				return lock, err
			}
			store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
				if time.Sleep(ms(10)); n(20) == 0 {
					return nil, errFault
				}
				defer time.Sleep(ms(10))
				return call()
			}
			store.onLeave = func(call func() error) error { time.Sleep(ms(5)); return call() }
			goroutines := runtime.NumGoroutine()
			lockers := []*locks.Locker{newLocker(t, store), newLocker(t, store)}
			var (
				all     sync.WaitGroup
				held    [3]sync.Mutex
				granted atomic.Int32
			)
			for i := range 300 {
				all.Go(func() {
					time.Sleep(ms(20_000))
					ctx, cancel := context.WithTimeout(t.Context(), ms(2_000))
					defer cancel()
					r := n(len(held))
					lease, err := lockers[i%2].Acquire(ctx, fmt.Sprint("r", r))
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
						return
					}
					if !held[r].TryLock() {
						t.Error("two hold it")
						return
					}
					granted.Add(1)
					time.Sleep(ms(200))
					held[r].Unlock()
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, locker := range lockers {
				if err := locker.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			wantGoroutines(t, goroutines)
			wantNoTickets(t, store)
			if n := store.Rows(); n != 0 || granted.Load() < 50 {
				t.Errorf("seed %d: %d of 300 were granted it, %d rows are left", seed, granted.Load(), n)
			}
		})
	}
}
