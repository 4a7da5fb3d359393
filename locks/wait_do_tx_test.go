package locks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// doTx waits in DoTx until the resource is free, which it becomes after ten seconds, when so many wait, and then runs fn.
func doTx(t *testing.T, store *queueStore, events *eventLog, waiting int, transactor locks.Transactor, fn workTx) error {
	t.Helper()
	locker := newLocker(t, store, locks.WithObserver(events))
	holder := tryAcquire(t, locker, "job")
	ended := make(chan error)
	go func() { ended <- locker.DoTx(t.Context(), transactor, "job", fn) }()
	time.Sleep(10 * time.Second)
	wantWaiting(t, locker, "job", waiting)
	if err := holder.Release(t.Context()); err != nil {
		t.Error(err)
	}
	err := <-ended
	synctest.Wait()
	return err
}

func TestDoTxKeepsItsPlaceOverItsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		tries := 0
		err := doTx(t, store, events, 1, transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
			tries++
			return store.InTx(ctx, fn)
		}), func(context.Context, locks.Tx, *locks.Lease) error {
			time.Sleep(20 * time.Second) // the ticket is kept, or nobody can say so
			return nil
		})
		if err != nil || tries != 3 { // refused, refused with a place, granted
			t.Errorf("DoTx: %v after %d transactions, want 3", err, tries)
		}
		wantCount(t, events, locks.EventQueued, 1)
		wantNoTickets(t, store)
		wantFree(t, store, "job")
	})
}

// A rollback brings the ticket back: it must not stand in the way of the next ones.
func TestDoTxLeavesNoTicketWhenTheWorkFails(t *testing.T) {
	for name, fn := range map[string]workTx{
		"an error": fails(errFault),
		"a panic":  func(context.Context, locks.Tx, *locks.Lease) error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := newQueueStore(), new(eventLog)
				locker := newLocker(t, store)
				next := make(chan time.Time, 1)
				time.AfterFunc(5*time.Second, func() {
					lease, err := locker.Acquire(t.Context(), "job")
					if err != nil {
						t.Error(err)
						return
					}
					next <- time.Now()
					_ = lease.Release(t.Context())
				})
				holder := tryAcquire(t, locker, "job")
				ended := make(chan error, 1)
				go func() {
					defer func() {
						if p := recover(); p != nil {
							ended <- errFault
						}
					}()
					ended <- newLocker(t, store, locks.WithObserver(events)).DoTx(t.Context(), store, "job", fn)
				}()
				time.Sleep(10 * time.Second)
				freed := time.Now()
				if err := holder.Release(t.Context()); err != nil {
					t.Error(err)
				}
				wantErr(t, <-ended, errFault)
				if waited := (<-next).Sub(freed); waited != 0 {
					t.Errorf("the next one had to wait for %v", waited)
				}
				synctest.Wait()
				wantNoTickets(t, store)
			})
		})
	}
}

// A transaction that cannot be begun has asked for nothing: whoever came later is granted later.
func TestDoTxKeepsItsPlaceWhileNoTransactionBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		down, ran := time.Now().Add(15*time.Second), false
		later := make(chan bool, 1)
		locker := newLocker(t, store)
		time.AfterFunc(5*time.Second, func() {
			lease, err := locker.Acquire(t.Context(), "job")
			if err != nil {
				t.Error(err)
				return
			}
			later <- ran
			_ = lease.Release(t.Context())
		})
		err := doTx(t, store, events, 2, transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
			if left := time.Until(down); left > 0 && left < 6*time.Second {
				return errFault
			}
			return store.InTx(ctx, fn)
		}), func(context.Context, locks.Tx, *locks.Lease) error { ran = true; return nil })
		if err != nil || !ran || !<-later {
			t.Errorf("DoTx: %v, ran %v; want that it runs first", err, ran)
		}
		wantCount(t, events, locks.EventQueued, 1)
		synctest.Wait()
		wantNoTickets(t, store)
	})
}

// After an acquire without an answer the next try is another attempt, with a place of its own.
func TestDoTxQueuesAgainAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := newQueueStore(), new(eventLog)
		lost := 0
		err := doTx(t, store, events, 1, transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
			return store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
				return fn(ctx, lossyTx{tx, func(err error) error {
					if err == nil && lost == 0 {
						lost++
						return errFault
					}
					return err
				}})
			})
		}), func(context.Context, locks.Tx, *locks.Lease) error { return nil })
		if err != nil || lost != 1 {
			t.Errorf("DoTx: %v, %d answers lost", err, lost)
		}
		time.Sleep(time.Minute)
		wantNoTickets(t, store)
		wantFree(t, store, "job")
	})
}

// lossyTx changes what an acquire answers.
type lossyTx struct {
	locks.Tx
	answer func(error) error
}

func (tx lossyTx) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	lock, err := tx.Tx.Acquire(ctx, request)
	return lock, tx.answer(err)
}

func TestDoTxGivesItsPlaceUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueueStore()
		locker := newLocker(t, store)
		tryAcquire(t, locker, "job")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := locker.DoTx(ctx, store, "job", fails(nil))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locks.ErrHeld) {
			t.Errorf("DoTx: %v", err)
		}
		synctest.Wait()
		wantNoTickets(t, store)
	})
}
