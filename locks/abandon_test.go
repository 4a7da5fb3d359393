package locks_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// firstCallHangs is a store whose first acquire is answered after d, whatever its context says.
func firstCallHangs(d time.Duration) *hookedStore {
	store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
	store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
		first := calls.Add(1) == 1
		lock, err := call()
		if first {
			time.Sleep(d)
		}
		return lock, err
	}
	return store
}

// The answer of a try that was given up comes when a later try of the same wait has the lease: that one stays.
func TestALateAnswerDoesNotFreeALiveLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := firstCallHangs(9 * time.Second)
		locker := newLocker(t, store)
		lease, err := locker.Acquire(t.Context(), "job:42")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		wantHeldBy(t, store, lease)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// The request of a try that was given up is carried out when the lease of a later try was released: nothing is left.
func TestARequestThatComesAfterTheReleaseIsFreed(t *testing.T) {
	for name, d := range map[string]time.Duration{"while it looks": 8 * time.Second, "long after": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
				store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
					if calls.Add(1) == 1 {
						time.Sleep(d)
					}
					return call()
				}
				locker := newLocker(t, store, locks.WithTTL(24*time.Hour))
				err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(d + time.Minute)
				wantFree(t, store, "job:42")
			})
		})
	}
}

// The same, where the driver had given up by itself: nobody will hear of the grant, so somebody has to look.
func TestARequestThatNobodyHearsOfIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			if calls.Add(1) > 1 {
				return call()
			}
			go func() {
				time.Sleep(2 * time.Second)
				_, _ = call()
			}()
			return locks.Lock{}, errFault
		}
		locker := newLocker(t, store, locks.WithTTL(24*time.Hour))
		if err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		wantFree(t, store, "job:42")
	})
}

// A caller that named its attempt retries it, and finds its grant: nobody frees that under it.
func TestANamedAttemptIsNotFreedUnderItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			if calls.Add(1) == 1 {
				return locks.Lock{}, errFault
			}
			return lock, err
		}
		locker := newLocker(t, store)
		if _, err := locker.TryAcquire(t.Context(), "job:42", locks.WithOwner("w1"), locks.WithAttempt("a1")); !errors.Is(err, errFault) {
			t.Fatalf("err = %v, want the fault", err)
		}
		lease := tryAcquire(t, locker, "job:42", locks.WithOwner("w1"), locks.WithAttempt("a1"))
		time.Sleep(10 * time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
	})
}

// A grant that is found again has less than its TTL left, and is renewed in time all the same.
func TestAGrantFoundAgainIsKept(t *testing.T) {
	for _, age := range []time.Duration{time.Second, 11 * time.Second, 22 * time.Second, 26 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			request := locks.Request{Resource: "job:42", Owner: "w1", Attempt: "a1", TTL: 30 * time.Second}
			if _, err := store.Acquire(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			time.Sleep(age)
			lease := tryAcquire(t, newLocker(t, store), "job:42", locks.WithOwner("w1"), locks.WithAttempt("a1"))
			time.Sleep(10 * time.Minute)
			if err := lease.Err(); err != nil {
				t.Errorf("found again after %v, ended: %v", age, err)
			}
		})
	}
}

// One that is over before it can be used is taken over by a new attempt of the same owner.
func TestAGrantThatIsOverIsTakenAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		request := locks.Request{Resource: "job:42", Owner: "w1", Attempt: "a1", TTL: 30 * time.Second}
		old, err := store.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(28 * time.Second)
		lease := tryAcquire(t, newLocker(t, store), "job:42", locks.WithOwner("w1"), locks.WithAttempt("a1"))
		if lease.Token() <= old.Token || time.Until(lease.Deadline()) < 26*time.Second {
			t.Errorf("token %d after %d, trusted for %v; want a new grant", lease.Token(), old.Token, time.Until(lease.Deadline()))
		}
	})
}

// A short outage while many gave up: when the database is back, all that was granted is freed long before its TTL.
func TestAbandonedGrantsAreFreedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		var mu sync.Mutex
		down := true
		isDown := func() bool { mu.Lock(); defer mu.Unlock(); return down }
		store.onAcquire = func(ctx context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			_, _ = call()
			<-ctx.Done()
			return locks.Lock{}, ctx.Err()
		}
		store.onAttempt = func(ctx context.Context, call func() error) error {
			if isDown() {
				<-ctx.Done()
				return ctx.Err()
			}
			return call()
		}
		locker := newLocker(t, store, locks.WithTTL(time.Hour))
		var tries sync.WaitGroup
		for i := range 20 {
			tries.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _ = locker.TryAcquire(ctx, string(rune('a'+i)))
			})
		}
		tries.Wait()
		time.Sleep(30 * time.Second)
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(30 * time.Second)
		if page, err := store.List(t.Context(), locks.ListQuery{}); err != nil || len(page.Locks) != 0 {
			t.Errorf("%d leases are left (%v)", len(page.Locks), err)
		}
	})
}

// Close does not wait for the pauses between looks: it looks once more and is done.
func TestCloseLooksOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		var late func() (locks.Lock, error)
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			late = call
			return locks.Lock{}, errFault
		}
		locker := newLocker(t, store, locks.WithTTL(time.Hour))
		if _, err := locker.TryAcquire(t.Context(), "job:42"); !errors.Is(err, errFault) {
			t.Fatal(err)
		}
		synctest.Wait() // the first look found nothing
		if _, err := late(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("Close took %v", waited)
		}
		wantFree(t, store, "job:42")
	})
}

// After Close has returned nil nobody calls the store: a call that hangs is waited for, as long as Close may.
func TestCloseWaitsForCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := firstCallHangs(time.Minute)
		locker := newLocker(t, store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := locker.TryAcquire(ctx, "job:42"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		start := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if waited := time.Since(start); waited < 58*time.Second {
			t.Errorf("Close returned after %v, before the call that hung", waited)
		}
		wantFree(t, store, "job:42")
	})
}
