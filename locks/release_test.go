package locks_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestReleaseIsOnceAndForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		calls := 0
		store.onRelease = func(_ context.Context, call func() error) error {
			calls++
			time.Sleep(time.Second)
			return call()
		}
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		var releases sync.WaitGroup
		for range 3 {
			releases.Go(func() {
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				wantFree(t, store, "job:42") // no call returns before the resource is free
			})
		}
		releases.Wait()
		if err := lease.Release(t.Context()); err != nil || calls != 1 {
			t.Errorf("Release again: %v after %d calls, want the first one's nil after 1", err, calls)
		}
		wantErr(t, lease.Err(), locks.ErrReleased)
	})
}

func TestReleaseAfterTheLeaseEndedSaysSo(t *testing.T) {
	locker := newLocker(t, memstore.New())
	for name, test := range map[string]struct {
		end  func(store *memstore.Store)
		want error
	}{
		"expired":    {func(store *memstore.Store) { store.Expire("job:42") }, locks.ErrExpired},
		"deleted":    {func(store *memstore.Store) { store.DeleteRow("job:42") }, locks.ErrNotHeld},
		"taken over": {func(store *memstore.Store) { store.Expire("job:42"); acquireDirectly(t, store, "job:42", "b") }, locks.ErrNotOwner},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			locker = newLocker(t, store)
			lease := tryAcquire(t, locker, "job:42")
			test.end(store)
			rows := store.Rows()
			first := lease.Release(t.Context())
			wantErr(t, first, test.want, locks.ErrLost)
			if again := lease.Release(t.Context()); again != first { //nolint:errorlint // the very error
				t.Errorf("second Release = %v, want the first one's %v", again, first)
			}
			if name == "taken over" && store.Rows() != rows {
				t.Error("the late release touched the new lease")
			}
		})
	}
}

func TestReleaseUnderAnEndedContextFrees(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	lease := tryAcquire(t, locker, "job:42")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	wantFree(t, store, "job:42")
}

func TestReleaseOutlivesFaults(t *testing.T) {
	for name, lose := range map[string]bool{"request lost": false, "answer lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New()}
				calls := 0
				store.onRelease = func(_ context.Context, call func() error) error {
					if calls++; calls > 2 {
						return call()
					}
					if lose {
						_ = call()
					}
					return errFault
				}
				locker := newLocker(t, store)
				lease := tryAcquire(t, locker, "job:42")
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				wantFree(t, store, "job:42")
			})
		})
	}
}

func TestReleaseGivesUpAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onRelease = func(context.Context, func() error) error { return errFault }
		events := new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		lease := tryAcquire(t, locker, "job:42")
		start := time.Now()
		wantErr(t, lease.Release(t.Context()), errFault)
		if took := time.Since(start); took > locks.DefaultReleaseLimit {
			t.Errorf("took %v, want at most the release limit", took)
		}
		if events.count(locks.EventReleaseFailed) != 1 {
			t.Error("the observer was not told")
		}
		time.Sleep(locks.DefaultTTL)
		wantFree(t, store, "job:42")
	})
}

// A renewal that is under way when the lease is released neither brings the lease back nor fails the release.
func TestReleaseDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		renewals := 0
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			renewals++
			time.Sleep(100 * time.Millisecond)
			lock, err := call()
			time.Sleep(100 * time.Millisecond)
			return lock, err
		}
		locker := newLocker(t, store)
		for _, at := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond} {
			renewals = 0
			lease := tryAcquire(t, locker, "job:42")
			time.Sleep(10*time.Second + at)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release %v into a renewal: %v", at, err)
			}
			time.Sleep(time.Minute)
			wantFree(t, store, "job:42")
			wantErr(t, lease.Err(), locks.ErrReleased)
			if renewals != 1 {
				t.Errorf("%d renewals, want the one that was under way", renewals)
			}
		}
	})
}

// A thousand acquires, cancelled and released at any moment, leave no row and no goroutine: the bubble would not end.
func TestNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		nap := func(most time.Duration) {
			mu.Lock()
			d := time.Duration(random.Int64N(int64(most)))
			mu.Unlock()
			time.Sleep(d)
		}
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			nap(100 * time.Millisecond)
			lock, err := call()
			nap(100 * time.Millisecond)
			return lock, err
		}
		locker := newLocker(t, store, locks.WithTTL(600*time.Millisecond))
		var works sync.WaitGroup
		for range 1000 {
			works.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				go func() { nap(250 * time.Millisecond); cancel() }()
				lease, err := locker.Acquire(ctx, "job:42")
				if err != nil {
					return
				}
				nap(time.Second)
				_ = lease.Release(ctx)
			})
			nap(10 * time.Millisecond)
		}
		works.Wait()
		time.Sleep(locks.DefaultReleaseLimit)
		wantFree(t, store, "job:42")
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// What the store says after tries that failed is no loss: the lease was freed by a try whose answer was lost, and
// perhaps taken at once by another, or it ended by its TTL while the store could not be asked.
func TestReleaseAfterFaultsIsNoLoss(t *testing.T) {
	for name, test := range map[string]struct {
		first func(store *memstore.Store, call func() error) error
		ttl   time.Duration
	}{
		"freed, then taken by another": {func(store *memstore.Store, call func() error) error {
			_ = call()
			_, _ = store.Acquire(context.Background(), locks.Request{Resource: "job:42", Owner: "b", Attempt: "b", TTL: time.Hour})
			return errFault
		}, 30 * time.Second},
		"ended by its TTL": {func(_ *memstore.Store, _ func() error) error {
			time.Sleep(2 * time.Second)
			return locks.ErrBusy
		}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
				store.onRelease = func(_ context.Context, call func() error) error {
					if calls.Add(1) == 1 {
						return test.first(store.Store, call)
					}
					return call()
				}
				locker := newLocker(t, store, locks.WithTTL(test.ttl))
				err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return nil })
				if err != nil {
					t.Errorf("Do = %v, want nil: the lease was held until the work returned", err)
				}
			})
		})
	}
}

// A busy store has done nothing: what it says next is the whole truth.
func TestReleaseAfterBusyTellsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
		store.onRelease = func(_ context.Context, call func() error) error {
			if calls.Add(1) == 1 {
				return locks.ErrBusy
			}
			return call()
		}
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		store.DeleteRow("job:42")
		wantErr(t, lease.Release(t.Context()), locks.ErrNotHeld)
	})
}

// Lost by its deadline, and its row is still there: the release frees that, and says that the lease was lost.
func TestReleaseOfALeaseLostByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42", locks.WithoutRenewal())
		<-lease.Context().Done()
		wantHeldBy(t, store, lease)
		wantErr(t, lease.Release(t.Context()), locks.ErrExpired)
		wantFree(t, store, "job:42")
	})
}
