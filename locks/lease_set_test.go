package locks_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// The set's context ends with the first loss, and tells which; the other leases go on until they are released.
func TestLeaseSetEndsWithTheFirstLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		store := memstore.New()
		locker := newLocker(t, store)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace-1"))
		set, err := locker.TryAcquireAll(ctx, []string{"account:7", "account:8", "account:9"})
		if err != nil {
			t.Fatal(err)
		}
		cancel() // it bounds the acquire, not the leases
		time.Sleep(time.Minute)
		if err := set.Err(); err != nil || set.Context().Value(key{}) != "trace-1" {
			t.Errorf("set ended with %v, its context has %v", err, set.Context().Value(key{}))
		}
		store.DeleteRow("account:8")
		ended := time.Now()
		<-set.Context().Done()
		if after := time.Since(ended); after > 10*time.Second {
			t.Errorf("told after %v, want at most an interval", after)
		}
		wantErr(t, context.Cause(set.Context()), locks.ErrNotHeld)
		wantErr(t, set.Err(), locks.ErrNotHeld)
		time.Sleep(time.Hour)
		wantHeldBy(t, store, set.Lease("account:7"))
		wantErr(t, set.Release(t.Context()), locks.ErrNotHeld)
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
		wantErr(t, set.Err(), locks.ErrNotHeld)
	})
}

// One that fails does not stop the others, every error is told, and again.
func TestLeaseSetRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		locker := newLocker(t, store)
		set := tryAcquireAll(t, locker, "a", "b", "c", "d", "e", "f", "g")
		var mu sync.Mutex
		store.onRelease = func(_ context.Context, call func() error) error {
			for _, lease := range set.Leases() {
				if lease.Context().Err() == nil {
					t.Errorf("a row is freed while work may go on under %q", lease.Resource())
				}
			}
			mu.Lock()
			defer mu.Unlock()
			return call()
		}
		store.DeleteRow("b")
		tx := begin(t, store.Store)
		if err := set.Lease("e").GuardTx(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wantErr(t, set.Release(t.Context()), locks.ErrNotHeld, locks.ErrGuarded)
		}
		wantErr(t, set.Err(), locks.ErrReleased)
		if n := store.Rows(); n != 1 {
			t.Errorf("%d rows, want the guarded one", n)
		}
	})
}

func TestLeaseSetGuardTx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		set := tryAcquireAll(t, locker, "account:7", "account:8", "account:9")
		tx := begin(t, store)
		if err := set.GuardTx(t.Context(), tx); err != nil {
			t.Fatalf("GuardTx: %v", err)
		}
		for _, lease := range set.Leases() {
			wantErr(t, store.Release(t.Context(), lease.Grant()), locks.ErrGuarded)
		}
		rollback(t, tx)
		store.DeleteRow("account:8")
		tx = begin(t, store)
		wantErr(t, set.GuardTx(t.Context(), tx), locks.ErrNotHeld)
		synctest.Wait()
		wantErr(t, context.Cause(set.Context()), locks.ErrNotHeld)
		wantErr(t, set.GuardTx(t.Context(), nil), locks.ErrInvalid)
	})
}

func TestCloseEndsASet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		set := tryAcquireAll(t, locker, "account:7", "account:8")
		closed := make(chan error)
		go func() { closed <- locker.Close(context.Background()) }()
		<-set.Context().Done()
		wantErr(t, set.Err(), locks.ErrClosed)
		time.Sleep(time.Hour)
		wantHeldBy(t, store, set.Lease("account:7"))
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A set of leases that cannot be renewed ends at their deadline.
func TestLeaseSetEndsAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		store.onRenew = func(context.Context, func() (locks.Lock, error)) (locks.Lock, error) { return locks.Lock{}, errFault }
		locker := newLocker(t, store)
		start := time.Now()
		set := tryAcquireAll(t, locker, "account:7", "account:8")
		<-set.Context().Done()
		if told := time.Since(start); told != 27*time.Second {
			t.Errorf("told after %v, want TTL less margin", told)
		}
		wantErr(t, set.Err(), locks.ErrExpired, errFault)
	})
}
