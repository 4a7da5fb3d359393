package locks_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A thousand transactions that acquire, renew, guard and release, end in any way, told or not, at any moment, while
// lockers close: no live row is left, long before a long TTL has passed and at the end of a short one, which also ends
// leases under way. And no goroutine, for the bubble would not end.
func TestNothingIsLeftBehindByTransactions(t *testing.T) {
	for seed, ttl := range []time.Duration{600 * time.Millisecond, 600 * time.Millisecond, time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			run := &randomTx{store: store, random: rand.New(rand.NewPCG(uint64(seed), 2)), untold: ttl < time.Second}
			var works sync.WaitGroup
			for i := range 250 {
				if i%25 == 0 {
					if run.locker != nil {
						closing, patience := run.locker, time.Duration(run.n(3))*time.Second
						works.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), patience)
							defer cancel()
							_ = closing.Close(ctx)
						})
					}
					run.locker = newLocker(t, store, locks.WithTTL(ttl))
				}
				locker := run.locker
				works.Go(func() { run.transaction(t, locker) })
				run.nap(60 * time.Millisecond)
			}
			works.Wait()
			if err := run.locker.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			time.Sleep(2 * locks.DefaultReleaseLimit)
			page, err := store.List(t.Context(), locks.ListQuery{})
			if err != nil || len(page.Locks) != 0 {
				t.Errorf("seed %d: %d live rows are left (%v), want none: %+v", seed, len(page.Locks), err, page.Locks)
			}
		})
	}
}

type randomTx struct {
	store  *memstore.Store
	locker *locks.Locker
	untold bool // whether some never say how they ended: what they leave stays for the TTL

	mu     sync.Mutex
	random *rand.Rand
}

func (r *randomTx) n(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(most)
}

func (r *randomTx) nap(most time.Duration) { time.Sleep(time.Duration(r.n(int(most)))) }

// transaction runs one, with a lease of its own or of a transaction that is committed already.
func (r *randomTx) transaction(t *testing.T, locker *locks.Locker) {
	ctx := t.Context()
	resource := fmt.Sprintf("invoice:%d", r.n(100))
	tx := &hookedTx{Tx: begin(t, r.store)}
	var lease *locks.Lease
	var err error
	if r.n(3) == 0 {
		lease, err = locker.Acquire(ctx, resource)
	} else {
		lease, err = locker.TryAcquireTx(ctx, tx, resource)
	}
	if err == nil {
		for range r.n(4) {
			r.nap(100 * time.Millisecond)
			switch r.n(5) {
			case 0:
				_ = lease.RenewTx(ctx, tx)
			case 1:
				_ = lease.GuardTx(ctx, tx)
			case 2:
				_ = lease.ReleaseTx(ctx, tx)
			case 3:
				go func() { _ = lease.Release(ctx) }()
			case 4:
				_ = lease.Renew(ctx)
			}
		}
		defer func() { _ = lease.Release(ctx) }()
	}
	r.nap(300 * time.Millisecond)
	outcome := locks.Committed
	if r.n(2) == 0 {
		outcome = locks.RolledBack
	}
	endings[outcome](t, tx.Tx)
	switch told := r.n(5); {
	case told == 0 && r.untold:
	case told == 1:
		tx.tell(locks.Unknown)
	default:
		tx.tell(outcome)
	}
	r.nap(time.Second)
}

// The end of a transaction beside calls on its lease: none of them hangs, and once the locker has closed nothing is left.
func TestTheEndBesideARelease(t *testing.T) {
	t.Parallel()
	for i := range 1000 {
		store := memstore.New()
		locker, err := locks.New(store)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := store.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lease := tryAcquireTx(t, locker, tx, "invoice:42")
		switch i % 3 {
		case 1:
			_ = lease.RenewTx(t.Context(), tx)
		case 2:
			_ = lease.ReleaseTx(t.Context(), tx)
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			if i%2 == 0 {
				_ = tx.Commit(t.Context())
			} else {
				_ = tx.Rollback(t.Context())
			}
		})
		calls.Go(func() { _ = lease.Release(t.Context()) })
		calls.Go(func() { _ = lease.Renew(t.Context()) })
		calls.Go(func() { _ = lease.Err() })
		calls.Go(func() {
			if other, err := locker.TryAcquire(t.Context(), "invoice:43"); err == nil {
				_ = other.Release(t.Context())
			}
		})
		calls.Wait()
		if err := locker.Close(t.Context()); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if n := store.Rows(); n != 0 {
			t.Fatalf("%d rows, want none", n)
		}
	}
}
