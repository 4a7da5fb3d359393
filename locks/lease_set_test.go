package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("account:%d", i)
	}
	return names
}

// However many leases it has, a set is released within the release limit, and nothing is renewed meanwhile.
func TestReleaseOfALargeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newHookedMulti(), new(eventLog)
		store.onRelease = func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }
		const limit = 45 * time.Second
		locker := newLocker(t, store, locks.WithObserver(events), locks.WithReleaseLimit(limit))
		set := tryAcquireAll(t, locker, numbered(100)...)
		start := time.Now()
		wantErr(t, set.Release(t.Context()), context.DeadlineExceeded)
		if took := time.Since(start); took > limit {
			t.Errorf("Release took %v, want at most %v", took, limit)
		}
		wantCount(t, events, locks.EventRenewed, 0)
		wantCount(t, events, locks.EventLost, 0)
		wantCount(t, events, locks.EventReleased, 0)
		wantCount(t, events, locks.EventReleaseFailed, 100)
	})
}

// Leases are released a few at a time. Those that end by their TTL before it is their turn are not lost: the work under
// them had returned.
func TestReleaseOfALargeSetThatOutlastsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newHookedMulti(), new(eventLog)
		var now atomic.Int32
		store.onRelease = func(_ context.Context, call func() error) error {
			if n := now.Add(1); n > 4 {
				t.Errorf("%d calls at once, want a few", n)
			}
			defer now.Add(-1)
			time.Sleep(4 * time.Second)
			return call()
		}
		locker := newLocker(t, store, locks.WithObserver(events), locks.WithReleaseLimit(time.Hour))
		set := tryAcquireAll(t, locker, numbered(60)...)
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		wantCount(t, events, locks.EventRenewed, 0)
		wantCount(t, events, locks.EventLost, 0)
		wantCount(t, events, locks.EventReleased, 60)
	})
}

// Some that are guarded for long, which a store waits for a little, do not keep the others from their turn.
func TestReleaseOfASetOfWhichSomeAreGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		store.onRelease = func(_ context.Context, call func() error) error {
			err := call()
			if errors.Is(err, locks.ErrGuarded) {
				time.Sleep(500 * time.Millisecond)
			}
			return err
		}
		locker := newLocker(t, store)
		set := tryAcquireAll(t, locker, numbered(40)...)
		tx := begin(t, store.Store)
		for _, lease := range set.Leases()[:8] {
			if err := lease.GuardTx(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		wantErr(t, set.Release(t.Context()), locks.ErrGuarded)
		if n := store.Rows(); n != 8 {
			t.Errorf("%d rows, want the guarded ones", n)
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
