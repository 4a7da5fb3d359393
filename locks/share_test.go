package locks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestSlotsAreChecked(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	for name, option := range map[string]locks.AcquireOption{
		"none": locks.WithSlots(0), "shared by number": locks.WithSlots(locks.Shared), "negative": locks.WithSlots(-5),
		"too many": locks.WithSlots(locks.MaxSlots + 1),
	} {
		_, err := locker.TryAcquire(t.Context(), "job:42", option)
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "slots" || !strings.Contains(err.Error(), "1 to 10000") {
			t.Errorf("%s: %v, want ErrInvalid for slots, with the limits", name, err)
		}
	}
	lease, err := locker.TryAcquire(t.Context(), "job:42", locks.WithSlots(2), locks.WithShared()) // the last one counts
	if err != nil || lease.Lock().Slots != locks.Shared {
		t.Fatalf("%v, %v, want a share among any number", lease, err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := locker.Holders(t.Context(), "job:42", 0); !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("none of the holders: %v, want ErrInvalid", err)
	}
	if _, err := locker.Holders(t.Context(), "", 1); !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
}

// bareStore has no more than a store must have.
type bareStore struct{ locks.Store }

func TestAStoreWithoutShares(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, bareStore{memstore.New()})
	wantStore := func(what string, err error) {
		t.Helper()
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "store" {
			t.Errorf("%s: %v, want ErrInvalid for the store", what, err)
		}
	}
	_, err := locker.TryAcquire(t.Context(), "job:42", locks.WithShared())
	wantStore("a share", err)
	_, err = locker.Holders(t.Context(), "job:42", 10)
	wantStore("holders", err)
	if _, err := locker.TryAcquire(t.Context(), "job:42"); err != nil {
		t.Errorf("an exclusive lease: %v", err)
	}
}

// Shares are acquired by themselves, and outside of transactions.
func TestSharesAreNoPartOfMore(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	locker := newLocker(t, store)
	wantSlots := func(what string, err error) {
		t.Helper()
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "slots" {
			t.Errorf("%s: %v, want ErrInvalid for slots", what, err)
		}
	}
	_, err := locker.TryAcquireAll(t.Context(), []string{"a", "b"}, locks.WithShared())
	wantSlots("all", err)
	work := func(context.Context, locks.Tx, *locks.Lease) error { t.Error("ran"); return nil }
	wantSlots("DoTx", locker.DoTx(t.Context(), store, "a", work, locks.WithSlots(2)))
	wantSlots("TryDoTx", locker.TryDoTx(t.Context(), store, "a", work, locks.WithSlots(2)))
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = locker.TryAcquireTx(t.Context(), tx, "a", locks.WithShared())
	wantSlots("TryAcquireTx", err)
	if n := store.Rows(); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
}

// Readers work together, a writer alone, and each waits for the others in the order in which they came. Shares are renewed as
// other leases are.
func TestReadersAndAWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New(), locks.WithTTL(time.Second))
		began := time.Now()
		var readers, writers atomic.Int32
		run := func(after time.Duration, count *atomic.Int32, alone *atomic.Int32, most int32, options ...locks.AcquireOption) (since *time.Duration) {
			since = new(time.Duration)
			time.AfterFunc(after, func() {
				err := locker.Do(t.Context(), "page", func(ctx context.Context, _ *locks.Lease) error {
					*since = time.Since(began)
					if n := count.Add(1); n > most || alone.Load() > 0 {
						t.Errorf("%d of a kind at work, and %d of the other", n, alone.Load())
					}
					time.Sleep(5 * time.Second) // five times its TTL
					count.Add(-1)
					return ctx.Err()
				}, options...)
				if err != nil {
					t.Error(err)
				}
			})
			return since
		}
		first := run(0, &readers, &writers, 2, locks.WithShared())
		second := run(time.Second, &readers, &writers, 2, locks.WithShared())
		writer := run(2*time.Second, &writers, &readers, 1)
		third := run(3*time.Second, &readers, &writers, 2, locks.WithShared())
		fourth := run(4*time.Second, &readers, &writers, 2, locks.WithShared())
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, since := range []*time.Duration{first, second, writer, third, fourth} {
			want := []time.Duration{0, time.Second, 6 * time.Second, 11 * time.Second, 11 * time.Second}[i]
			if *since != want {
				t.Errorf("number %d began after %v, want %v", i+1, *since, want)
			}
		}
	})
}

func TestASemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		lockers := []*locks.Locker{newLocker(t, store), newLocker(t, store)}
		began := time.Now()
		var at, most atomic.Int32
		var group sync.WaitGroup
		for i := range 30 {
			group.Go(func() {
				err := lockers[i%2].Do(t.Context(), "api:mail", func(ctx context.Context, _ *locks.Lease) error {
					most.Store(max(most.Load(), at.Add(1)))
					defer at.Add(-1)
					time.Sleep(time.Minute)
					return ctx.Err()
				}, locks.WithSlots(3))
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if took := time.Since(began); most.Load() != 3 || took != 10*time.Minute {
			t.Errorf("at most %d at once, in %v, want 3 in 10m: no more, and no slot idle", most.Load(), took)
		}
		if holders, err := lockers[0].Holders(t.Context(), "api:mail", 10); err != nil || len(holders) != 0 {
			t.Errorf("%v, %v, want nobody", holders, err)
		}
	})
}

// A request that does not agree with how the resource is held is refused at once: a wait would be wrong.
func TestOtherSlotsEndAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		if _, err := locker.Acquire(t.Context(), "api:mail", locks.WithSlots(3), locks.WithOwner("worker-1")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for name, options := range map[string][]locks.AcquireOption{
			"another number":   {locks.WithSlots(4)},
			"any number":       {locks.WithShared()},
			"alone, by itself": {locks.WithOwner("worker-1")},
		} {
			_, err := locker.Acquire(t.Context(), "api:mail", options...)
			var slots *locks.SlotsError
			if !errors.As(err, &slots) || slots.Held != 3 || errors.Is(err, locks.ErrHeld) {
				t.Errorf("%s: %v, want a SlotsError that is not held", name, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it waited %v", took)
		}
	})
}

// A share whose grant was not heard of is freed in the background, as any lease.
func TestALostShareIsFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			if _, err := call(); err != nil {
				t.Error(err)
			}
			return locks.Lock{}, errFault
		}
		locker := newLocker(t, store)
		if _, err := locker.TryAcquire(t.Context(), "page", locks.WithShared()); !errors.Is(err, errFault) {
			t.Fatalf("%v, want the fault", err)
		}
		synctest.Wait()
		if holders, err := store.Holders(t.Context(), "page", 10); err != nil || len(holders) != 0 {
			t.Errorf("%v, %v, want nobody", holders, err)
		}
	})
}
