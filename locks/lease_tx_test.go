package locks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A renewal in a transaction moves the deadline with the commit, and no renewal by itself comes in between.
func TestRenewTxMovesTheDeadlineWithTheCommit(t *testing.T) {
	for end, finish := range endings {
		t.Run(end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := &hookedStore{Store: memstore.New()}, new(eventLog)
				looked := make(chan struct{}) // the overdue renewal comes when the end has been looked at
				store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
					<-looked
					return call()
				}
				locker := newLocker(t, store, locks.WithObserver(events))
				start := time.Now()
				lease := tryAcquire(t, locker, "report:2026-05")
				time.Sleep(5 * time.Second)
				tx := begin(t, store.Store)
				if err := lease.RenewTx(t.Context(), tx); err != nil {
					t.Fatalf("RenewTx: %v", err)
				}
				wantErr(t, lease.Renew(t.Context()), locks.ErrPending)
				time.Sleep(15 * time.Second) // one was due meanwhile
				wantCount(t, events, locks.EventRenewed, 0)
				if got := lease.Deadline().Sub(start); got != 27*time.Second {
					t.Errorf("deadline is %v after the grant before the end, want 27s", got)
				}
				finish(t, tx)
				want := 27 * time.Second
				if end == locks.Committed {
					want += 5 * time.Second // from its sending
					wantCount(t, events, locks.EventRenewed, 1)
					if left := time.Until(lease.Lock().ExpiresAt); left != 15*time.Second {
						t.Errorf("Lock() has %v left, want 15s", left)
					}
				}
				if got := lease.Deadline().Sub(start); got != want {
					t.Errorf("deadline is %v after the grant, want %v", got, want)
				}
				close(looked)
				time.Sleep(time.Nanosecond) // it was overdue
				if got := lease.Deadline().Sub(start); got != 47*time.Second {
					t.Errorf("deadline is %v after the grant, want it renewed at once, 47s", got)
				}
				time.Sleep(time.Hour)
				if err := lease.Err(); err != nil {
					t.Errorf("lease ended: %v", err)
				}
				wantHeldBy(t, store, lease)
			})
		})
	}
}

// A renewal that is under way is waited for, since it has the row locked, within the context.
func TestRenewTxWaitsForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(4 * time.Second)
			return call()
		}
		locker := newLocker(t, store)
		start := time.Now()
		lease := tryAcquire(t, locker, "report:2026-05")
		time.Sleep(11 * time.Second)
		tx := begin(t, store.Store)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, lease.RenewTx(ctx, tx), context.DeadlineExceeded)
		if err := lease.RenewTx(t.Context(), tx); err != nil {
			t.Fatalf("RenewTx: %v", err)
		}
		if waited := time.Since(start); waited != 14*time.Second {
			t.Errorf("answered %v after the grant, want 14s, when the renewal had its answer", waited)
		}
		commit(t, tx)
		time.Sleep(time.Hour)
		wantHeldBy(t, store, lease)
	})
}

func TestReleaseTx(t *testing.T) {
	for end, finish := range endings {
		t.Run(end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := memstore.New(), new(eventLog)
				locker := newLocker(t, store, locks.WithObserver(events))
				lease := tryAcquire(t, locker, "report:2026-05")
				tx := begin(t, store)
				if err := lease.ReleaseTx(t.Context(), tx); err != nil {
					t.Fatalf("ReleaseTx: %v", err)
				}
				time.Sleep(25 * time.Second)
				wantHeldBy(t, store, lease)
				wantErr(t, lease.Renew(t.Context()), locks.ErrPending)
				wantErr(t, lease.GuardTx(t.Context(), tx), locks.ErrLost) // it is gone there, which is no loss
				if err := lease.Err(); err != nil {
					t.Errorf("lease ended before the transaction did: %v", err)
				}
				finish(t, tx)
				if end == locks.RolledBack {
					time.Sleep(time.Hour)
					wantHeldBy(t, store, lease)
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
				} else {
					wantErr(t, lease.Renew(t.Context()), locks.ErrReleased)
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("Release of what is released: %v", err)
					}
				}
				wantErr(t, lease.Err(), locks.ErrReleased)
				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
				wantCount(t, events, locks.EventReleased, 1)
				wantCount(t, events, locks.EventLost, 0)
			})
		})
	}
}

// Who releases a lease that a transaction is releasing is told so, and it is freed however the transaction ends.
func TestReleaseWhileATransactionReleases(t *testing.T) {
	for end, finish := range endings {
		t.Run(end.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := &hookedStore{Store: memstore.New()}, new(eventLog)
				asked := 0
				store.onRelease = func(_ context.Context, call func() error) error { asked++; return call() }
				locker := newLocker(t, store, locks.WithObserver(events))
				lease := tryAcquire(t, locker, "report:2026-05")
				tx := begin(t, store.Store)
				if err := lease.ReleaseTx(t.Context(), tx); err != nil {
					t.Fatalf("ReleaseTx: %v", err)
				}
				wantErr(t, lease.Release(t.Context()), locks.ErrPending)
				wantErr(t, lease.Err(), locks.ErrReleased)
				finish(t, tx)
				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
				if want := map[locks.Outcome]int{locks.RolledBack: 1}[end]; asked != want {
					t.Errorf("the store was asked for %d releases, want %d", asked, want)
				}
				wantCount(t, events, locks.EventReleased, 1)
				wantCount(t, events, locks.EventReleaseFailed, 0)
			})
		})
	}
}

// The lease's deadline passes before the transaction that releases it commits: it is lost, and nothing is left to free.
func TestReleaseTxThatCommitsAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		lease := tryAcquire(t, locker, "report:2026-05")
		tx := begin(t, store)
		if err := lease.ReleaseTx(t.Context(), tx); err != nil {
			t.Fatalf("ReleaseTx: %v", err)
		}
		<-lease.Context().Done()
		synctest.Wait() // the observers are told after the context
		wantErr(t, lease.Err(), locks.ErrExpired)
		commit(t, tx)
		wantErr(t, lease.Release(t.Context()), locks.ErrExpired)
		wantCount(t, events, locks.EventLost, 1)
		wantCount(t, events, locks.EventReleaseFailed, 0)
	})
}

// A guard keeps others off past the end of the lease, and lets the holder renew.
func TestGuardTx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "account:7")
		tx := begin(t, store)
		if err := lease.GuardTx(t.Context(), tx); err != nil {
			t.Fatalf("GuardTx: %v", err)
		}
		time.Sleep(time.Hour)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended under its guard: %v", err)
		}
		store.Expire("account:7")
		_, err := locker.TryAcquire(t.Context(), "account:7")
		wantErr(t, err, locks.ErrHeld)
		commit(t, tx)
		tryAcquire(t, locker, "account:7")
	})
}

// A guard of a lease that is gone ends the lease, and the transaction writes nothing.
func TestGuardTxOfALostLease(t *testing.T) {
	for name, change := range map[string]struct {
		do   func(t *testing.T, store *memstore.Store, lease *locks.Lease)
		want error
	}{
		"expired":     {func(_ *testing.T, store *memstore.Store, _ *locks.Lease) { store.Expire("account:7") }, locks.ErrExpired},
		"row deleted": {func(_ *testing.T, store *memstore.Store, _ *locks.Lease) { store.DeleteRow("account:7") }, locks.ErrNotHeld},
		"taken over": {func(t *testing.T, store *memstore.Store, _ *locks.Lease) {
			store.Expire("account:7")
			acquireDirectly(t, store, "account:7", "other")
		}, locks.ErrNotOwner},
		"superseded": {func(t *testing.T, store *memstore.Store, lease *locks.Lease) {
			acquireDirectly(t, store, "account:7", lease.Owner())
		}, locks.ErrSuperseded},
	} {
		for what, call := range map[string]func(*locks.Lease, context.Context, locks.Tx) error{
			"GuardTx": (*locks.Lease).GuardTx, "RenewTx": (*locks.Lease).RenewTx, "ReleaseTx": (*locks.Lease).ReleaseTx,
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, events := memstore.New(), new(eventLog)
					locker := newLocker(t, store, locks.WithObserver(events))
					lease := tryAcquire(t, locker, "account:7")
					change.do(t, store, lease)
					tx := begin(t, store)
					wantErr(t, call(lease, t.Context(), tx), change.want, locks.ErrLost)
					wantErr(t, context.Cause(lease.Context()), change.want)
					wantErr(t, call(lease, t.Context(), tx), change.want)
					wantErr(t, lease.Release(t.Context()), change.want)
					wantCount(t, events, locks.EventLost, 1)
				})
			})
		}
	}
}

// Another database does not know the lease: it is simply not held there.
func TestGuardTxInAnotherDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		lease := tryAcquire(t, newLocker(t, store), "account:7")
		wantErr(t, lease.GuardTx(t.Context(), begin(t, memstore.New())), locks.ErrNotHeld)
		wantErr(t, lease.Release(t.Context()), locks.ErrNotHeld)
		wantFree(t, store, "account:7") // not told by its own database, it is freed there all the same
	})
}

// A transaction guards what it has acquired itself; nothing that it does there ends the handle before the end.
func TestGuardTxOfAPendingLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		tx := begin(t, store)
		lease := tryAcquireTx(t, locker, tx, "account:7")
		if err := lease.GuardTx(t.Context(), tx); err != nil {
			t.Errorf("GuardTx: %v", err)
		}
		other := begin(t, store)
		wantErr(t, lease.GuardTx(t.Context(), other), locks.ErrLost) // invisible there
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
		rollback(t, other)
		commit(t, tx)
		wantHeldBy(t, store, lease)
	})
}

// A release that a guard refuses is tried again for as long as the release limit, and then says why it failed.
func TestReleaseOfAGuardedLease(t *testing.T) {
	for name, test := range map[string]struct {
		guard time.Duration
		want  error
	}{"ends in time": {3 * time.Second, nil}, "lasts": {time.Minute, locks.ErrGuarded}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := memstore.New(), new(eventLog)
				locker := newLocker(t, store, locks.WithObserver(events), locks.WithTTL(10*time.Minute))
				lease := tryAcquire(t, locker, "account:7")
				tx := begin(t, store)
				if err := lease.GuardTx(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				go func() { time.Sleep(test.guard); rollback(t, tx) }()
				start := time.Now()
				err := lease.Release(t.Context())
				waited := time.Since(start)
				if test.want == nil {
					if err != nil || waited < 3*time.Second || waited > 3*time.Second+locks.DefaultMaxBackoff {
						t.Errorf("Release returned %v after %v, want nil once the guard has ended", err, waited)
					}
					wantFree(t, store, "account:7")
					return
				}
				wantErr(t, err, test.want)
				if waited > locks.DefaultReleaseLimit || waited < locks.DefaultReleaseLimit-locks.DefaultMaxBackoff {
					t.Errorf("Release returned after %v, want its limit", waited)
				}
				wantErr(t, lease.Release(t.Context()), test.want)
				wantHeldBy(t, store, lease)
				wantCount(t, events, locks.EventReleaseFailed, 1)
				time.Sleep(time.Minute)
			})
		})
	}
}

// What cannot be done in a transaction leaves the lease as it is: renewed by itself, and to be released.
func TestLeaseTxBadInput(t *testing.T) {
	for name, call := range map[string]func(*locks.Lease, context.Context, locks.Tx) error{
		"GuardTx": (*locks.Lease).GuardTx, "RenewTx": (*locks.Lease).RenewTx, "ReleaseTx": (*locks.Lease).ReleaseTx,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				lease := tryAcquire(t, locker, "account:7")
				over := begin(t, store)
				rollback(t, over)
				wantErr(t, call(lease, t.Context(), nil), locks.ErrInvalid)
				wantErr(t, call(lease, t.Context(), over), locks.ErrInvalid)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				wantErr(t, call(lease, ended, begin(t, store)), context.Canceled)
				time.Sleep(time.Hour)
				wantHeldBy(t, store, lease)
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
				wantErr(t, call(lease, t.Context(), begin(t, store)), locks.ErrReleased)
			})
		})
	}
}

// Held for its longest time, a lease is of no use in a transaction any more.
func TestLeaseTxAfterTheLongestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "account:7", locks.WithMaxHold(time.Second))
		time.Sleep(2 * time.Second)
		tx := begin(t, store)
		wantErr(t, lease.GuardTx(t.Context(), tx), locks.ErrMaxHold)
		wantErr(t, lease.RenewTx(t.Context(), tx), locks.ErrMaxHold)
		wantErr(t, lease.ReleaseTx(t.Context(), tx), locks.ErrMaxHold)
	})
}
