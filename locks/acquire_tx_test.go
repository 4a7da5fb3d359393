package locks_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A transaction may be short or take longer than an interval: the lease is renewed after its commit, never before.
func TestAPendingLeaseIsRenewedAfterTheCommit(t *testing.T) {
	for name, open := range map[string]time.Duration{"shorter than an interval": 3 * time.Second, "longer": 25 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := &hookedStore{Store: memstore.New()}, new(eventLog)
				var asked atomic.Int32
				store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
					asked.Add(1)
					return call()
				}
				locker := newLocker(t, store, locks.WithObserver(events))
				tx := begin(t, store.Store)
				lease := tryAcquireTx(t, locker, tx, "invoice:42")
				wantCount(t, events, locks.EventAcquired, 1)
				time.Sleep(open)
				wantFree(t, store, "invoice:42")
				if _, err := locker.TryAcquire(t.Context(), "invoice:42"); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("acquired by somebody else before the commit: %v", err)
				}
				if n := asked.Load(); n != 0 {
					t.Errorf("renewed %d times before the commit", n)
				}
				commit(t, tx)
				wantHeldBy(t, store, lease)
				time.Sleep(max(0, 10*time.Second-open) + time.Nanosecond)
				if n := asked.Load(); n != 1 {
					t.Errorf("renewed %d times an interval after the grant, want once", n)
				}
				time.Sleep(10 * time.Minute)
				wantHeldBy(t, store, lease)
				if err := lease.Err(); err != nil {
					t.Errorf("lease ended: %v", err)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				wantFree(t, store, "invoice:42")
			})
		})
	}
}

func TestARollbackTakesTheLeaseAway(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, tx, savepoint *memstore.Tx){
		"of the transaction": func(t *testing.T, tx, _ *memstore.Tx) { t.Helper(); rollback(t, tx) },
		"of the savepoint":   func(t *testing.T, _, savepoint *memstore.Tx) { t.Helper(); rollback(t, savepoint) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := &hookedStore{Store: memstore.New()}, new(eventLog)
				store.onRelease = func(_ context.Context, call func() error) error {
					t.Error("asked to release what is not there")
					return call()
				}
				locker := newLocker(t, store, locks.WithObserver(events))
				tx := begin(t, store.Store)
				savepoint, err := tx.Savepoint(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				lease := tryAcquireTx(t, locker, savepoint, "invoice:42")
				end(t, tx, savepoint)
				wantErr(t, context.Cause(lease.Context()), locks.ErrLost, locks.ErrNotHeld, locks.ErrRolledBack)
				wantErr(t, lease.Err(), locks.ErrRolledBack)
				wantErr(t, lease.Renew(t.Context()), locks.ErrRolledBack)
				wantErr(t, lease.Release(t.Context()), locks.ErrRolledBack)
				time.Sleep(time.Hour)
				wantCount(t, events, locks.EventRolledBack, 1)
				wantCount(t, events, locks.EventLost, 0)
				wantCount(t, events, locks.EventReleaseFailed, 0)
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
			})
		})
	}
}

// Where the commit's answer is missing, the next renewal tells, and it is sent at once.
func TestAnUnknownOutcomeIsDecidedByARenewal(t *testing.T) {
	for end, finish := range endings {
		t.Run("in truth "+end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := memstore.New(), new(eventLog)
				locker := newLocker(t, store, locks.WithObserver(events))
				tx := &hookedTx{Tx: begin(t, store)}
				lease := tryAcquireTx(t, locker, tx, "invoice:42")
				time.Sleep(time.Second)
				finish(t, tx.Tx)
				tx.tell(locks.Unknown)
				time.Sleep(time.Nanosecond)
				if end == locks.Committed {
					wantCount(t, events, locks.EventRenewed, 1)
					time.Sleep(time.Hour)
					wantHeldBy(t, store, lease)
					return
				}
				wantErr(t, lease.Err(), locks.ErrNotHeld)
				wantCount(t, events, locks.EventLost, 1)
			})
		})
	}
}

// What cannot be done before the transaction has ended is refused, at once, and does no harm.
func TestAPendingLeaseIsNotRenewedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		tx := begin(t, store)
		lease := tryAcquireTx(t, locker, tx, "invoice:42")
		wantErr(t, lease.Renew(t.Context()), locks.ErrPending)
		commit(t, tx)
		if err := lease.Renew(t.Context()); err != nil {
			t.Errorf("Renew after the commit: %v", err)
		}
	})
}

// A lease that is released while it is pending is freed when the transaction has ended, and there is no word of it where
// that was a rollback.
func TestAPendingLeaseIsFreedAfterTheEnd(t *testing.T) {
	for end, finish := range endings {
		for name, renewed := range map[string]bool{"": false, "renewed and ": true} {
			t.Run(name+end.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, events := &hookedStore{Store: memstore.New()}, new(eventLog)
					asked := 0
					store.onRelease = func(_ context.Context, call func() error) error { asked++; return call() }
					locker := newLocker(t, store, locks.WithObserver(events))
					tx := begin(t, store.Store)
					lease := tryAcquireTx(t, locker, tx, "invoice:42")
					if renewed {
						if err := lease.RenewTx(t.Context(), tx); err != nil {
							t.Fatal(err)
						}
					}
					wantErr(t, lease.Release(t.Context()), locks.ErrPending)
					wantErr(t, lease.Err(), locks.ErrReleased)
					time.Sleep(time.Second)
					finish(t, tx)
					if err := locker.Close(t.Context()); err != nil { // waits for what is done in the background
						t.Errorf("Close: %v", err)
					}
					wantErr(t, lease.Release(t.Context()), locks.ErrPending)
					if n := store.Rows(); n != 0 {
						t.Errorf("%d rows, want none", n)
					}
					want := map[locks.Outcome]int{locks.Committed: 1}[end]
					if asked != want {
						t.Errorf("the store was asked for %d releases, want %d", asked, want)
					}
					wantCount(t, events, locks.EventReleased, want)
					wantCount(t, events, locks.EventReleaseFailed, 0)
					wantCount(t, events, locks.EventRolledBack, 1-want)
				})
			})
		}
	}
}

// A transaction that outlives the lease's deadline: the lease is lost then, and what is left of it can still be freed.
func TestAPendingLeaseIsLostAtItsDeadline(t *testing.T) {
	for end, finish := range endings {
		for name, early := range map[string]bool{"released before": true, "released after": false} {
			t.Run(name+" "+end.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, events := memstore.New(), new(eventLog)
					locker := newLocker(t, store, locks.WithObserver(events))
					tx := begin(t, store)
					start := time.Now()
					lease := tryAcquireTx(t, locker, tx, "invoice:42")
					<-lease.Context().Done()
					if told := time.Since(start); told != 27*time.Second {
						t.Errorf("told after %v, want TTL less margin", told)
					}
					synctest.Wait() // the observers are told after the context
					release := func() { t.Helper(); wantErr(t, lease.Release(t.Context()), locks.ErrExpired) }
					if early {
						release()
					}
					finish(t, tx)
					if !early {
						release()
					}
					if err := locker.Close(t.Context()); err != nil {
						t.Errorf("Close: %v", err)
					}
					if n := store.Rows(); n != 0 {
						t.Errorf("%d rows, want none", n)
					}
					wantCount(t, events, locks.EventLost, 1)
					wantCount(t, events, locks.EventRolledBack, 0)
					wantCount(t, events, locks.EventReleaseFailed, 0)
				})
			})
		}
	}
}

// A grant that nobody holds, since its answer was lost, came too late, or came to a locker that had closed, is freed by
// its attempt once it may be committed.
func TestAGrantToNobodyIsFreedAfterTheEnd(t *testing.T) {
	type hook = func(ctx context.Context, call func() (locks.Lock, error)) (locks.Lock, error)
	for name, test := range map[string]struct {
		hook func(locker *locks.Locker) hook
		want error
	}{
		"answer lost": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
				_, _ = call()
				return locks.Lock{}, errFault
			}
		}, errFault},
		"answer too late": {func(*locks.Locker) hook {
			return func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
				lock, err := call()
				time.Sleep(28 * time.Second)
				return lock, err
			}
		}, locks.ErrExpired},
		"locker closed": {func(locker *locks.Locker) hook {
			return func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
				go func() { _ = locker.Close(context.Background()) }()
				synctest.Wait()
				return call()
			}
		}, locks.ErrClosed},
	} {
		for _, outcome := range []locks.Outcome{locks.Committed, locks.RolledBack, locks.Unknown} {
			t.Run(name+", "+outcome.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &hookedStore{Store: memstore.New()}
					freed := 0
					store.onAttempt = func(_ context.Context, call func() error) error { freed++; return call() }
					locker := newLocker(t, store)
					tx := &hookedTx{Tx: begin(t, store.Store), onAcquire: test.hook(locker)}
					lease, err := locker.TryAcquireTx(t.Context(), tx, "invoice:42")
					if lease != nil {
						t.Errorf("got a lease and %v", err)
					}
					wantErr(t, err, test.want)
					time.Sleep(time.Second)
					if freed != 0 {
						t.Errorf("asked to free %d times before the end", freed)
					}
					if outcome == locks.RolledBack {
						rollback(t, tx.Tx)
					} else {
						commit(t, tx.Tx)
					}
					tx.tell(outcome)
					synctest.Wait()
					if n := store.Rows(); n != 0 {
						t.Errorf("%d rows, want none", n)
					}
					if (freed > 0) != (outcome != locks.RolledBack) {
						t.Errorf("asked to free %d times after it was %v", freed, outcome)
					}
				})
			})
		}
	}
}

// What the store refuses leaves the transaction as it was, and observers are told.
func TestTryAcquireTxIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		holder := tryAcquire(t, locker, "invoice:42")
		tx := begin(t, store)
		_, err := locker.TryAcquireTx(t.Context(), tx, "invoice:42")
		var held *locks.HeldError
		if !errors.As(err, &held) || held.Holder == nil || held.Holder.Grant() != holder.Grant() {
			t.Errorf("err = %v, want held by %+v", err, holder.Grant())
		}
		wantCount(t, events, locks.EventRefused, 1)
		if err := holder.GuardTx(t.Context(), tx); err != nil {
			t.Errorf("GuardTx: %v", err)
		}
		_, err = locker.TryAcquireTx(t.Context(), tx, "invoice:42", locks.WithOwner(holder.Owner()))
		wantErr(t, err, locks.ErrGuarded)
		lease := tryAcquireTx(t, locker, tx, "invoice:43")
		commit(t, tx)
		wantHeldBy(t, store, lease)
		_, err = locker.TryAcquireTx(t.Context(), tx, "invoice:44")
		wantErr(t, err, locks.ErrInvalid)
		_, err = locker.TryAcquireTx(t.Context(), nil, "invoice:44")
		wantErr(t, err, locks.ErrInvalid)
		_, err = locker.TryAcquireTx(t.Context(), begin(t, store), "")
		wantErr(t, err, locks.ErrInvalid)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locker.TryAcquireTx(ended, begin(t, store), "invoice:44")
		wantErr(t, err, context.Canceled)
		wantFree(t, store, "invoice:44")
	})
}

// The context of an acquire bounds the acquire, not the lease; its values are kept.
func TestTryAcquireTxContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		store := memstore.New()
		locker := newLocker(t, store)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace-1"))
		tx := begin(t, store)
		lease, err := locker.TryAcquireTx(ctx, tx, "invoice:42")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		commit(t, tx)
		time.Sleep(time.Hour)
		if err := lease.Err(); err != nil || lease.Context().Value(key{}) != "trace-1" {
			t.Errorf("lease ended with %v, its context has %v", err, lease.Context().Value(key{}))
		}
	})
}

// Close ends a pending lease's context and waits for its release, which is that of the transaction.
func TestCloseWithAPendingLease(t *testing.T) {
	for end, finish := range endings {
		t.Run(end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				tx := begin(t, store)
				lease := tryAcquireTx(t, locker, tx, "invoice:42")
				closed := make(chan error)
				go func() { closed <- locker.Close(context.Background()) }()
				<-lease.Context().Done()
				wantErr(t, lease.Err(), locks.ErrClosed)
				synctest.Wait()
				wantErr(t, lease.Release(t.Context()), locks.ErrPending)
				time.Sleep(time.Second)
				finish(t, tx)
				if err := <-closed; err != nil {
					t.Errorf("Close: %v", err)
				}
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
			})
		})
		t.Run(end.String()+" after a Close whose context ends", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				tx := begin(t, store)
				tryAcquireTx(t, locker, tx, "invoice:42")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantErr(t, locker.Close(ctx), context.DeadlineExceeded, locks.ErrPending)
				finish(t, tx)
				synctest.Wait()
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
			})
		})
	}
}
