package locks_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// changedTx is a transaction that changes leases as the test says.
type changedTx struct {
	*memstore.Tx
	change func(call func() error) error
}

func (tx changedTx) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (lock locks.Lock, err error) {
	err = tx.change(func() error { lock, err = tx.Tx.Renew(ctx, grant, ttl); return err })
	return lock, err
}

func (tx changedTx) Release(ctx context.Context, grant locks.Grant) error {
	return tx.change(func() error { return tx.Tx.Release(ctx, grant) })
}

// changes are the calls that change a lease within a transaction.
var changes = map[string]func(*locks.Lease, context.Context, locks.Tx) error{
	"RenewTx": (*locks.Lease).RenewTx, "ReleaseTx": (*locks.Lease).ReleaseTx,
}

// A query hook panics, before or after its statement: the lease is renewed again, and can be released.
func TestAChangeThatPanicsIsOver(t *testing.T) {
	for name, change := range changes {
		for when, before := range map[string]bool{"before": true, "after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, events := memstore.New(), new(eventLog)
					locker := newLocker(t, store, locks.WithObserver(events))
					lease := tryAcquire(t, locker, "report:2026-05")
					tx := begin(t, store)
					func() {
						defer func() {
							if recover() == nil {
								t.Error("the panic was swallowed")
							}
						}()
						_ = change(lease, t.Context(), changedTx{tx, func(call func() error) error {
							if !before {
								_ = call()
							}
							panic("hook")
						}})
					}()
					rollback(t, tx)
					time.Sleep(time.Hour)
					if events.count(locks.EventRenewed) == 0 {
						t.Error("it was never renewed again")
					}
					wantHeldBy(t, store, lease)
					if err := lease.Renew(t.Context()); err != nil {
						t.Errorf("Renew: %v", err)
					}
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
					wantFree(t, store, "report:2026-05")
				})
			})
		}
	}
}

// A change that failed neither asks for a renewal before it is due, nor forgets one that became due meanwhile.
func TestAChangeThatFailedKeepsTheRenewalsTime(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New()}
				var renewals atomic.Int32
				store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
					renewals.Add(1)
					return call()
				}
				locker := newLocker(t, store)
				start := time.Now()
				lease := tryAcquire(t, locker, "report:2026-05")
				wantRenewals := func(want int32) {
					t.Helper()
					time.Sleep(time.Nanosecond)
					if n := renewals.Load(); n != want {
						t.Errorf("renewed %d times %v after the grant, want %d", n, time.Since(start), want)
					}
				}
				failing := changedTx{begin(t, store.Store), func(func() error) error {
					time.Sleep(4 * time.Second)
					return errFault
				}}
				wantErr(t, change(lease, t.Context(), failing), errFault) // at 4 s
				wantRenewals(0)
				time.Sleep(4 * time.Second)
				wantErr(t, change(lease, t.Context(), failing), errFault) // at 12 s, and one was due at 10 s
				wantRenewals(1)
				time.Sleep(time.Hour)
				wantHeldBy(t, store, lease)
			})
		})
	}
}

// A transaction that is nil is refused at once, also while a renewal is under way.
func TestANilTransactionWaitsForNothing(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
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
				wantErr(t, change(lease, t.Context(), nil), locks.ErrInvalid)
				if waited := time.Since(start); waited != 11*time.Second {
					t.Errorf("refused %v after the grant, want 11s", waited)
				}
			})
		})
	}
}
