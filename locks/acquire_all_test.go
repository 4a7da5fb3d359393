package locks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// hookedMulti is a memory store whose acquires of several resources a test can delay, fail or lose.
type hookedMulti struct {
	hookedStore
	onAll func(ctx context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error)
}

func (s *hookedMulti) AcquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	if s.onAll == nil {
		return s.Store.AcquireAll(ctx, requests)
	}
	return s.onAll(ctx, func() ([]locks.Lock, error) {
		return s.Store.AcquireAll(context.WithoutCancel(ctx), requests)
	})
}

func newHookedMulti() *hookedMulti {
	return &hookedMulti{hookedStore: hookedStore{Store: memstore.New()}}
}

func tryAcquireAll(t *testing.T, locker *locks.Locker, resources ...string) *locks.LeaseSet {
	t.Helper()
	set, err := locker.TryAcquireAll(t.Context(), resources)
	if err != nil {
		t.Fatalf("TryAcquireAll(%q): %v", resources, err)
	}
	return set
}

func TestTryAcquireAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		set := tryAcquireAll(t, locker, "account:9", "account:10", "account:7")
		var resources []string
		for _, lease := range set.Leases() {
			resources = append(resources, lease.Resource())
			if set.Lease(lease.Resource()) != lease || lease.Owner() != set.Leases()[0].Owner() {
				t.Errorf("lease of %q is not its own, or of another owner", lease.Resource())
			}
		}
		if want := []string{"account:10", "account:7", "account:9"}; !slices.Equal(resources, want) {
			t.Errorf("leases of %q, want %q", resources, want)
		}
		if lease := set.Lease("account:8"); lease != nil {
			t.Errorf("a lease of %q that was not asked for", lease.Resource())
		}
		wantCount(t, events, locks.EventAcquired, 3)
		time.Sleep(time.Hour)
		for _, lease := range set.Leases() {
			wantHeldBy(t, store, lease)
		}
		if err := set.Err(); err != nil {
			t.Errorf("set ended: %v", err)
		}
	})
}

// One of them is held, or guarded: nothing is granted, and nobody ever sees a part of them held.
func TestTryAcquireAllIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		holder := tryAcquire(t, locker, "account:8")
		_, err := locker.TryAcquireAll(t.Context(), []string{"account:7", "account:8", "account:9"})
		var held *locks.HeldError
		if !errors.As(err, &held) || held.Resource != "account:8" || held.Holder.Grant() != holder.Grant() {
			t.Errorf("err = %v, want account:8 held by %+v", err, holder.Grant())
		}
		if n := store.Rows(); n != 1 {
			t.Errorf("%d rows, want the holder's", n)
		}
		wantCount(t, events, locks.EventRefused, 3)
		tx := begin(t, store)
		tryAcquireTx(t, locker, tx, "account:7")
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = locker.TryAcquireAll(t.Context(), []string{"account:7", "account:8", "account:9"})
		wantErr(t, err, locks.ErrHeld)
		rollback(t, tx)
		tryAcquireAll(t, locker, "account:7", "account:8", "account:9")
	})
}

func TestAcquireAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "account:8")
		go func() { time.Sleep(time.Minute); _ = holder.Release(t.Context()) }()
		go func() {
			time.Sleep(30 * time.Second)
			wantFree(t, store, "account:7") // nothing is held while it waits
		}()
		start := time.Now()
		set, err := locker.AcquireAll(t.Context(), []string{"account:8", "account:7"})
		if err != nil {
			t.Fatalf("AcquireAll: %v", err)
		}
		if waited := time.Since(start); waited < time.Minute || waited > time.Minute+locks.DefaultMaxBackoff {
			t.Errorf("waited %v, want a minute and at most one pause", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = locker.AcquireAll(ctx, []string{"account:7", "account:9"})
		wantErr(t, err, context.DeadlineExceeded, locks.ErrHeld)
		wantFree(t, store, "account:9")
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// Many who want the same resources, named in any order, all get them in turn, and never two at once.
func TestAcquireAllDoesNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		var at atomic.Int32
		var works sync.WaitGroup
		for i := range 20 {
			works.Go(func() {
				resources := []string{"account:7", "account:8", "account:9"}
				if i%2 == 0 {
					slices.Reverse(resources)
				}
				set, err := locker.AcquireAll(t.Context(), resources)
				if err != nil {
					t.Errorf("AcquireAll: %v", err)
					return
				}
				if n := at.Add(1); n != 1 {
					t.Errorf("%d at once, want 1", n)
				}
				time.Sleep(100 * time.Millisecond)
				at.Add(-1)
				if err := set.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		works.Wait()
	})
}

// What was granted to nobody is freed, each part of it, by its attempt.
func TestAcquireAllLeavesNothingBehind(t *testing.T) {
	type hook = func(ctx context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error)
	for name, test := range map[string]struct {
		hook func(*locks.Locker) hook
		want error
	}{
		"answer lost": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				_, _ = call()
				return nil, errFault
			}
		}, errFault},
		"request on its way for long": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				time.Sleep(time.Minute)
				return call()
			}
		}, context.DeadlineExceeded},
		"answer too late": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				granted, err := call()
				time.Sleep(4 * time.Second)
				return granted, err
			}
		}, locks.ErrExpired},
		"a part of an answer": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				granted, err := call()
				return granted[:1], err
			}
		}, nil},
		"panic": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				_, _ = call()
				panic("driver")
			}
		}, nil},
		"locker closed": {func(locker *locks.Locker) hook {
			return func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
				go func() { _ = locker.Close(context.Background()) }()
				synctest.Wait()
				return call()
			}
		}, locks.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newHookedMulti()
				locker := newLocker(t, store, locks.WithTTL(3*time.Second))
				store.onAll = test.hook(locker)
				set, err := locker.TryAcquireAll(t.Context(), []string{"account:7", "account:8"})
				if set != nil || err == nil || errors.Is(err, locks.ErrHeld) {
					t.Errorf("TryAcquireAll = %v, %v; want a fault", set, err)
				}
				if test.want != nil {
					wantErr(t, err, test.want)
				}
				if err := locker.Close(t.Context()); err != nil { // waits for what is done in the background
					t.Errorf("Close: %v", err)
				}
				for _, resource := range []string{"account:7", "account:8"} {
					wantFree(t, store, resource)
				}
			})
		})
	}
}

// A waiting acquire finds the grants whose answer was lost.
func TestAcquireAllFindsTheGrantsWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		var lost []locks.Lock
		store.onAll = func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
			granted, err := call()
			if lost == nil {
				lost = granted
				return nil, errFault
			}
			return granted, err
		}
		locker := newLocker(t, store)
		set, err := locker.AcquireAll(t.Context(), []string{"account:7", "account:8"})
		if err != nil {
			t.Fatalf("AcquireAll: %v", err)
		}
		for i, lease := range set.Leases() {
			if lease.Grant() != lost[i].Grant() {
				t.Errorf("grant %+v, want the lost %+v", lease.Grant(), lost[i].Grant())
			}
		}
		time.Sleep(time.Hour)
		for _, lease := range set.Leases() {
			wantHeldBy(t, store, lease)
		}
	})
}

// They may be found with no more than the margin left: then they are taken over by a new attempt, as by Acquire.
func TestAcquireAllFindsOldGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookedMulti()
		var lost []locks.Lock
		store.onAll = func(_ context.Context, call func() ([]locks.Lock, error)) ([]locks.Lock, error) {
			granted, err := call()
			if lost == nil {
				lost = granted
				time.Sleep(3800 * time.Millisecond)
				return nil, errFault
			}
			return granted, err
		}
		locker := newLocker(t, store, locks.WithTTL(4*time.Second))
		set, err := locker.AcquireAll(t.Context(), []string{"account:7", "account:8"})
		if err != nil {
			t.Fatalf("AcquireAll: %v", err)
		}
		for i, lease := range set.Leases() {
			if lease.Lock().ID != lost[i].ID || lease.Token() <= lost[i].Token {
				t.Errorf("%+v, want a new grant in the row of %+v", lease.Lock(), lost[i])
			}
		}
		time.Sleep(time.Hour)
		for _, lease := range set.Leases() {
			wantHeldBy(t, store, lease)
		}
		if err := set.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}

// Too many names are refused before anything is made for each of them.
func TestTryAcquireAllOfFarTooMany(t *testing.T) { // not parallel: it looks at what is allocated
	locker := newLocker(t, memstore.New())
	resources := make([]string, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := locker.TryAcquireAll(t.Context(), resources)
	runtime.ReadMemStats(&after)
	wantErr(t, err, locks.ErrInvalid)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 16<<20 {
		t.Errorf("it took %d bytes to refuse %d names", bytes, len(resources))
	}
}

func TestTryAcquireAllBadInput(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	locker := newLocker(t, store)
	names := func(n int) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("account:%d", i)
		}
		return names
	}
	single := newLocker(t, struct{ locks.Store }{store})
	for name, test := range map[string]struct {
		locker    *locks.Locker
		resources []string
		options   []locks.AcquireOption
		field     string
	}{
		"none":                 {locker: locker, resources: nil, field: "resources"},
		"101":                  {locker: locker, resources: names(101), field: "resources"},
		"the same twice":       {locker: locker, resources: []string{"b", "a", "b"}, field: "resources"},
		"an empty name":        {locker: locker, resources: []string{"a", ""}, field: "resource"},
		"a bad name":           {locker: locker, resources: []string{"a", "b\x00"}, field: "resource"},
		"a bad option":         {locker: locker, resources: []string{"a"}, options: []locks.AcquireOption{nil}, field: "option"},
		"a store without it":   {locker: single, resources: []string{"a"}, field: "store"},
		"a bad owner":          {locker: locker, resources: []string{"a"}, options: []locks.AcquireOption{locks.WithOwner("\n")}, field: "owner"},
		"the store goes first": {locker: single, resources: nil, field: "store"},
	} {
		_, err := test.locker.TryAcquireAll(t.Context(), test.resources, test.options...)
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: %v, want an InvalidError for the %s", name, err, test.field)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := locker.AcquireAll(ended, names(2))
	wantErr(t, err, context.Canceled)
	if n := store.Rows(); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	if set := tryAcquireAll(t, locker, names(100)...); len(set.Leases()) != 100 {
		t.Errorf("%d leases, want 100", len(set.Leases()))
	}
}
