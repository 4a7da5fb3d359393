package locks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// The outcome is unknown and the commit is carried out a moment later: the row that it leaves belongs to nobody, and does
// not stay for its TTL.
func TestACommitThatArrivesLateLeavesNothing(t *testing.T) {
	for name, release := range map[string]struct{ before, after bool }{
		"released before the end": {before: true}, "released after it": {after: true}, "never released": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				tx := &hookedTx{Tx: begin(t, store)}
				lease := tryAcquireTx(t, locker, tx, "invoice:42")
				if release.before {
					wantErr(t, lease.Release(t.Context()), locks.ErrPending)
				}
				tx.tell(locks.Unknown)
				time.Sleep(100 * time.Millisecond)
				if release.after {
					wantErr(t, lease.Release(t.Context()), locks.ErrNotHeld)
				}
				commit(t, tx.Tx)
				time.Sleep(locks.DefaultReleaseLimit)
				wantFree(t, store, "invoice:42")
				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

// A panic of a query hook in an acquire leaves a grant to nobody, should the transaction be committed all the same.
func TestAnAcquireThatPanicsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		tx := begin(t, store)
		hooked := &hookedTx{Tx: tx, onAcquire: func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			_, _ = call()
			panic("hook")
		}}
		func() {
			defer func() { _ = recover() }()
			_, _ = locker.TryAcquireTx(t.Context(), hooked, "invoice:42")
		}()
		commit(t, tx)
		hooked.tell(locks.Committed)
		synctest.Wait()
		wantFree(t, store, "invoice:42")
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// countedStore counts the calls that the locker makes by itself.
func countedStore() (*hookedStore, *atomic.Int32) {
	store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
	store.onRelease = func(_ context.Context, call func() error) error { calls.Add(1); return call() }
	store.onAttempt = store.onRelease
	store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
		calls.Add(1)
		return call()
	}
	return store, calls
}

// What is left to do at the end of a transaction.
var leftToDo = map[string]func(t *testing.T, locker *locks.Locker, tx *hookedTx){
	"release of an acquired lease": func(t *testing.T, locker *locks.Locker, tx *hookedTx) {
		wantErr(t, tryAcquireTx(t, locker, tx, "invoice:42").Release(t.Context()), locks.ErrPending)
	},
	"release of a renewed lease": func(t *testing.T, locker *locks.Locker, tx *hookedTx) {
		lease := tryAcquire(t, locker, "invoice:42")
		time.Sleep(5 * time.Second)
		if err := lease.RenewTx(t.Context(), tx); err != nil {
			t.Errorf("RenewTx: %v", err)
		}
		wantErr(t, lease.Release(t.Context()), locks.ErrPending)
	},
	"grant whose answer was lost": func(t *testing.T, locker *locks.Locker, tx *hookedTx) {
		tx.onAcquire = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			_, _ = call()
			return locks.Lock{}, errFault
		}
		_, err := locker.TryAcquireTx(t.Context(), tx, "invoice:42")
		wantErr(t, err, errFault)
	},
}

// Close waits for the end of a transaction where the locker has something to do then, and for that.
func TestCloseWaitsForTheEndOfATransaction(t *testing.T) {
	for name, leave := range leftToDo {
		for end, finish := range endings {
			t.Run(name+", "+end.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, calls := countedStore()
					locker := newLocker(t, store)
					tx := &hookedTx{Tx: begin(t, store.Store)}
					leave(t, locker, tx)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					wantErr(t, locker.Close(ctx), context.DeadlineExceeded)
					told := time.Now().Add(time.Second)
					go func() {
						time.Sleep(time.Second)
						finish(t, tx.Tx)
						tx.tell(end)
					}()
					if err := locker.Close(t.Context()); err != nil || time.Now().Before(told) {
						t.Errorf("Close returned %v %v before the end was told", err, time.Until(told))
					}
					wantFree(t, store, "invoice:42")
					before := calls.Load()
					time.Sleep(time.Hour)
					if n := calls.Load(); n != before {
						t.Errorf("the store was called %d times after Close", n-before)
					}
				})
			})
		}
	}
}

// Where nobody tells the end in time the row ends by its TTL, Close does not wait for longer, and a word that comes after
// that starts nothing.
func TestCloseWaitsForTheTTLAtMost(t *testing.T) {
	for name, leave := range leftToDo {
		for _, told := range []locks.Outcome{locks.Committed, locks.RolledBack, locks.Unknown} {
			t.Run(name+", "+told.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, calls := countedStore()
					locker := newLocker(t, store)
					tx := &hookedTx{Tx: begin(t, store.Store)}
					leave(t, locker, tx)
					start := time.Now()
					if err := locker.Close(t.Context()); err != nil {
						t.Errorf("Close: %v", err)
					}
					if waited := time.Since(start); waited != locks.DefaultTTL {
						t.Errorf("Close returned after %v, want the TTL", waited)
					}
					commit(t, tx.Tx)
					tx.tell(told)
					wantFree(t, store, "invoice:42")
					time.Sleep(time.Hour)
					if n := calls.Load(); n != 0 {
						t.Errorf("the store was called %d times after Close", n)
					}
				})
			})
		}
	}
}

// A named attempt can find what an earlier transaction has committed. A rollback does not take that away, and a release
// frees it; where there is nothing, a release has nothing to complain of but the loss.
func TestARollbackOfANamedAttempt(t *testing.T) {
	for name, found := range map[string]bool{"grant found again": true, "new grant": false} {
		for when, early := range map[string]bool{"released before": true, "released after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, events := memstore.New(), new(eventLog)
					locker := newLocker(t, store, locks.WithObserver(events))
					if found {
						request := locks.Request{Resource: "invoice:42", Owner: "worker-1", Attempt: "1", TTL: time.Hour}
						if _, err := store.Acquire(t.Context(), request); err != nil {
							t.Fatal(err)
						}
					}
					tx := begin(t, store)
					lease, err := locker.TryAcquireTx(t.Context(), tx, "invoice:42", locks.WithOwner("worker-1"), locks.WithAttempt("1"))
					if err != nil {
						t.Fatal(err)
					}
					if early {
						wantErr(t, lease.Release(t.Context()), locks.ErrPending)
					}
					rollback(t, tx)
					if !early {
						wantErr(t, lease.Err(), locks.ErrRolledBack)
						wantErr(t, lease.Release(t.Context()), locks.ErrRolledBack)
					}
					if err := locker.Close(t.Context()); err != nil {
						t.Errorf("Close: %v", err)
					}
					if n := store.Rows(); n != 0 {
						t.Errorf("%d rows, want none", n)
					}
					wantCount(t, events, locks.EventRolledBack, 1)
					wantCount(t, events, locks.EventReleased, map[bool]int{true: 1}[found])
					wantCount(t, events, locks.EventReleaseFailed, 0)
				})
			})
		}
	}
}

// A grant found again with no more than the margin left is of no use, though its answer was quick: the error says so.
func TestAnOldGrantIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		request := locks.Request{Resource: "invoice:42", Owner: "worker-1", Attempt: "1", TTL: 2 * time.Second}
		if _, err := store.Acquire(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		_, err := locker.TryAcquireTx(t.Context(), begin(t, store), "invoice:42", locks.WithOwner("worker-1"), locks.WithAttempt("1"))
		var lost *locks.LostError
		if !errors.As(err, &lost) || !errors.Is(err, locks.ErrExpired) || !strings.Contains(err.Error(), "had 2s left of a TTL of 30s") {
			t.Errorf("err = %v, want it to say what was left", err)
		}
	})
}
