package locks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Those who wait are served in the order in which they came, each when the one before is done. A hand-over costs one
// acquire: only the one whose turn it is asks the store.
func TestAHandOverCostsOneAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 50
		store := newQueueStore()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "job")
		var (
			all   sync.WaitGroup
			order []int
		)
		for i := range waiters {
			all.Go(func() {
				err := locker.Do(t.Context(), "job", func(context.Context, *locks.Lease) error {
					order = append(order, i)
					time.Sleep(time.Second)
					return nil
				})
				if err != nil {
					t.Errorf("Do: %v", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(20 * time.Second)
		wantWaiting(t, locker, "job", waiters)
		start, acquires := time.Now(), store.acquires.Load()
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if !slices.IsSorted(order) || len(order) != waiters {
			t.Errorf("served in the order %v", order)
		}
		if took := time.Since(start); took != waiters*time.Second {
			t.Errorf("%d works of a second took %v: a hand-over is not at once", waiters, took)
		}
		if n := store.acquires.Load() - acquires; n != waiters {
			t.Errorf("%d acquires for %d hand-overs", n, waiters)
		}
		if served, left := store.served.Load(), store.left.Load(); served != waiters || left != 0 {
			t.Errorf("%d places were told that they are served, %d were given up", served, left)
		}
		wantNoTickets(t, store)
	})
}

// The resource became free between the refusal and the ticket: nobody will say so.
func TestAWaiterTriesOnceMoreWhenItHasQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueueStore()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "job")
		store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
			if err := holder.Release(t.Context()); err != nil {
				t.Error(err)
			}
			return call()
		}
		start := time.Now()
		if _, err := locker.Acquire(t.Context(), "job"); err != nil || time.Since(start) != 0 {
			t.Errorf("Acquire: %v after %v, want at once", err, time.Since(start))
		}
		wantNoTickets(t, store)
	})
}

func TestAWaiterWhosePlaceHasLapsedQueuesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		holder := tryAcquire(t, locker, "job")
		got := make(chan *locks.Lease)
		for range 2 {
			go func() {
				lease, err := locker.Acquire(t.Context(), "job")
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			synctest.Wait()
		}
		store.ExpireTicket(1)
		time.Sleep(10 * time.Second) // the front notices
		wantCount(t, events, locks.EventQueued, 3)
		if got := store.numbers(); !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("tickets %v, want that the first one queues again behind the second", got)
		}
		for range 2 {
			if err := holder.Release(t.Context()); err != nil {
				t.Error(err)
			}
			holder = <-got
		}
		wantNoTickets(t, store)
	})
}

func TestAFaultDuringTheWaitKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		holder := tryAcquire(t, locker, "job")
		got := make(chan *locks.Lease)
		go func() {
			lease, err := locker.Acquire(t.Context(), "job")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		synctest.Wait()
		down := time.Now()
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			if time.Since(down) < 5*time.Second {
				return locks.Lock{}, errFault
			}
			return call()
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		wantWaiting(t, locker, "job", 1)
		<-got
		if waited := time.Since(down); waited > 7*time.Second {
			t.Errorf("granted after %v", waited)
		}
		wantCount(t, events, locks.EventQueued, 1)
		wantNoTickets(t, store)
	})
}

func TestAFaultOfTheQueueIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		fault error
		down  time.Duration
		want  error
	}{
		"short":        {errFault, 5 * time.Second, nil},
		"lasting":      {errFault, time.Hour, errFault},
		"busy":         {locks.ErrBusy, time.Minute, nil},
		"it is full":   {locks.ErrQueueFull, time.Hour, locks.ErrQueueFull},
		"not accepted": {locks.ErrInvalid, time.Hour, locks.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueueStore()
				locker := newLocker(t, store)
				holder := tryAcquire(t, locker, "job")
				start := time.Now()
				store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
					if time.Since(start) < test.down {
						return nil, test.fault
					}
					return call()
				}
				time.AfterFunc(2*time.Minute, func() { _ = holder.Release(context.Background()) })
				lease, err := locker.Acquire(t.Context(), "job")
				if !errors.Is(err, test.want) || (err == nil) != (lease != nil) {
					t.Errorf("Acquire = %v, %v; want %v", lease, err, test.want)
				}
				if waited := time.Since(start); test.want != nil && waited > 11*time.Second {
					t.Errorf("failed after %v", waited)
				}
				wantNoTickets(t, store)
			})
		})
	}
}

func TestAFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		locker := newLocker(t, store, locks.WithMaxWaiters(2), locks.WithObserver(events))
		holder := tryAcquire(t, locker, "job")
		for range 2 {
			go func() {
				if lease, err := locker.Acquire(t.Context(), "job"); err == nil {
					_ = lease.Release(t.Context())
				} else {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		start := time.Now()
		_, err := locker.Acquire(t.Context(), "job")
		wantErr(t, err, locks.ErrQueueFull, locks.ErrHeld)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("refused after %v", waited)
		}
		wantCount(t, events, locks.EventRefused, 1)
		wantWaiting(t, locker, "job", 2)
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantNoTickets(t, store)
	})
}

func TestAStoreWithoutAQueueIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		locker := newLocker(t, unqueued{store}, locks.WithObserver(events))
		holder := tryAcquire(t, locker, "job")
		time.AfterFunc(time.Minute, func() { _ = holder.Release(context.Background()) })
		acquires := store.acquires.Load()
		if _, err := locker.Acquire(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		if n := store.acquires.Load() - acquires; n < 30 || n > 300 {
			t.Errorf("%d tries in a minute", n)
		}
		wantCount(t, events, locks.EventQueued, 0)
		_, err := locker.Waiters(t.Context(), "job", 0)
		wantErr(t, err, locks.ErrInvalid)
	})
}

func TestAcquireAllHasNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "b")
		time.AfterFunc(time.Minute, func() {
			if n := store.Tickets(); n != 0 {
				t.Errorf("%d tickets", n)
			}
			_ = holder.Release(context.Background())
		})
		set, err := locker.AcquireAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		// Nor does it take what others wait for.
		got := make(chan error)
		go func() {
			lease, err := locker.Acquire(t.Context(), "a")
			if err == nil {
				time.Sleep(time.Second)
				err = lease.Release(t.Context())
			}
			got <- err
		}()
		synctest.Wait()
		if err := set.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

// The grant was over before it could be used: what is asked for next has another attempt, and no place yet.
func TestAWaiterWithANewAttemptQueuesForThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueueStore()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "job")
		got := make(chan *locks.Lease, 2)
		for i := range 2 {
			go func() {
				lease, err := locker.Acquire(t.Context(), "job", locks.WithOwner(fmt.Sprint("w", i)))
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			synctest.Wait()
		}
		slow := true
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			if err == nil && slow {
				slow = false
				store.Expire("job")
				lock.Remaining = 0
				time.Sleep(31 * time.Second) // longer than the TTL
			}
			return lock, err
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Error(err)
		}
		for range 2 {
			lease := <-got
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wantNoTickets(t, store)
	})
}
