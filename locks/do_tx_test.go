package locks_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// transactorFunc is a function as a Transactor.
type transactorFunc func(ctx context.Context, fn func(context.Context, locks.Tx) error) error

func (f transactorFunc) InTx(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
	return f(ctx, fn)
}

type workTx = func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error

func fails(err error) workTx {
	return func(context.Context, locks.Tx, *locks.Lease) error { return err }
}

func TestTryDoTxReleasesWithTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		runs := 0
		err := locker.TryDoTx(t.Context(), store, "invoice:42", func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error {
			runs++
			if err := lease.GuardTx(ctx, tx); err != nil {
				t.Errorf("GuardTx: %v", err)
			}
			time.Sleep(20 * time.Second)
			wantFree(t, store, "invoice:42") // nobody sees it, and
			_, err := locker.TryAcquire(ctx, "invoice:42")
			wantErr(t, err, locks.ErrHeld)
			return ctx.Err()
		})
		if err != nil || runs != 1 {
			t.Errorf("TryDoTx ran the work %d times and returned %v", runs, err)
		}
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
		wantCount(t, events, locks.EventRenewed, 0)
		wantCount(t, events, locks.EventReleased, 1)
		wantCount(t, events, locks.EventReleaseFailed, 0)
		tryAcquire(t, locker, "invoice:42")
	})
}

func TestTryDoTxDoesNotRunTheWorkWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		tryAcquire(t, locker, "invoice:42")
		err := locker.TryDoTx(t.Context(), store, "invoice:42", func(context.Context, locks.Tx, *locks.Lease) error {
			t.Error("ran")
			return nil
		})
		wantErr(t, err, locks.ErrHeld)
	})
}

// It waits with no transaction open, also for a database that is busy, and runs the work once.
func TestDoTxWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "invoice:42")
		go func() { time.Sleep(time.Minute); _ = holder.Release(t.Context()) }()
		busy, runs := 3, 0
		transactor := transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
			if busy--; busy >= 0 {
				return locks.ErrBusy
			}
			return store.InTx(ctx, fn)
		})
		start := time.Now()
		err := locker.DoTx(t.Context(), transactor, "invoice:42", func(context.Context, locks.Tx, *locks.Lease) error {
			runs++
			return nil
		})
		waited := time.Since(start)
		if err != nil || runs != 1 || waited < time.Minute || waited > time.Minute+locks.DefaultMaxBackoff {
			t.Errorf("DoTx ran the work %d times and returned %v after %v", runs, err, waited)
		}
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}

func TestDoTxWaitsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		tryAcquire(t, locker, "invoice:42")
		never := func(context.Context, locks.Tx, *locks.Lease) error { t.Error("ran"); return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantErr(t, locker.DoTx(ctx, store, "invoice:42", never), context.DeadlineExceeded, locks.ErrHeld)
		go func() { time.Sleep(time.Second); _ = locker.Close(t.Context()) }()
		wantErr(t, locker.DoTx(t.Context(), store, "invoice:42", never), locks.ErrClosed)
		wantErr(t, locker.TryDoTx(t.Context(), store, "invoice:43", never), locks.ErrClosed)
	})
}

// What ends the work otherwise than well rolls all of it back, and is passed on. There is no other try.
func TestDoTxRollsBack(t *testing.T) {
	type ended struct { // how the goroutine of the call ended
		err      error
		panicked any
		exited   bool
	}
	for name, test := range map[string]struct {
		work workTx
		want ended
	}{
		"error":           {fails(errFault), ended{err: errFault}},
		"retryable error": {fails(locks.ErrSerialization), ended{err: locks.ErrSerialization}},
		"held elsewhere":  {fails(locks.Held("other", nil)), ended{err: locks.ErrHeld}},
		"panic":           {func(context.Context, locks.Tx, *locks.Lease) error { panic("boom") }, ended{panicked: "boom"}},
		"exit": {func(context.Context, locks.Tx, *locks.Lease) error {
			runtime.Goexit()
			return nil
		}, ended{exited: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, events := memstore.New(), new(eventLog)
				locker := newLocker(t, store, locks.WithObserver(events))
				runs, got, done := 0, ended{exited: true}, make(chan struct{})
				go func() {
					defer close(done)
					defer func() {
						if p := recover(); p != nil {
							got = ended{panicked: p}
						}
					}()
					err := locker.DoTx(t.Context(), store, "invoice:42", func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error {
						runs++
						return test.work(ctx, tx, lease)
					})
					got = ended{err: err}
				}()
				<-done
				wantErr(t, got.err, test.want.err)
				if got.panicked != test.want.panicked || got.exited != test.want.exited {
					t.Errorf("ended with %+v, want %+v", got, test.want)
				}
				if runs != 1 {
					t.Errorf("ran the work %d times, want once", runs)
				}
				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
				wantCount(t, events, locks.EventRolledBack, 1)
				wantCount(t, events, locks.EventReleaseFailed, 0)
			})
		})
	}
}

// A commit that fails is reported, and whatever it did, nothing is left: also where nobody ever tells the outcome.
func TestDoTxWhoseCommitFails(t *testing.T) {
	for end, finish := range endings {
		for _, told := range []locks.Outcome{end, locks.Unknown, 0} {
			name := end.String() + ", told " + told.String()
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					locker := newLocker(t, store)
					transactor := transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
						tx := &hookedTx{Tx: begin(t, store)}
						if err := fn(ctx, tx); err != nil {
							t.Errorf("work: %v", err)
						}
						finish(t, tx.Tx)
						if told != 0 {
							tx.tell(told)
						}
						return errFault
					})
					runs, start := 0, time.Now()
					var kept *locks.Lease
					err := locker.DoTx(t.Context(), transactor, "invoice:42", func(_ context.Context, _ locks.Tx, lease *locks.Lease) error {
						runs, kept = runs+1, lease
						return nil
					})
					wantErr(t, err, errFault)
					if kept.Err() == nil {
						t.Error("the lease is trusted after the work")
					}
					if errors.Is(err, locks.ErrLost) || runs != 1 {
						t.Errorf("DoTx ran the work %d times and returned %v", runs, err)
					}
					most := time.Duration(0)
					if told == 0 {
						most = locks.DefaultTTL
					}
					if err := locker.Close(t.Context()); err != nil || time.Since(start) > most {
						t.Errorf("Close returned %v after %v, want nil within %v", err, time.Since(start), most)
					}
					if n := store.Rows(); n != 0 {
						t.Errorf("%d rows, want none", n)
					}
				})
			})
		}
	}
}

// The work is told when its lease ends, and what it wrote until then is not committed.
func TestDoTxEndsTheWorkWithItsLease(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(t *testing.T, locker *locks.Locker, cancel context.CancelFunc)
		want []error
	}{
		"deadline": {func(*testing.T, *locks.Locker, context.CancelFunc) {}, []error{locks.ErrLost, locks.ErrExpired}},
		"context's end": {func(_ *testing.T, _ *locks.Locker, cancel context.CancelFunc) {
			cancel()
		}, []error{context.Canceled}},
		"locker closed": {func(t *testing.T, locker *locks.Locker, _ context.CancelFunc) {
			go func() { _ = locker.Close(t.Context()) }()
		}, []error{locks.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var cause error
				err := locker.TryDoTx(ctx, store, "invoice:42", func(ctx context.Context, _ locks.Tx, _ *locks.Lease) error {
					test.end(t, locker, cancel)
					<-ctx.Done()
					cause = context.Cause(ctx)
					if errors.Is(cause, locks.ErrExpired) {
						return nil // work that does not look at its context is not committed all the same
					}
					return cause
				})
				wantErr(t, cause, test.want...)
				wantErr(t, err, test.want...)
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
			})
		})
	}
}

// A commit that comes after the lease's deadline is still the only holder's: the work is done, and not reported as lost,
// so that nobody does it again.
func TestDoTxWithASlowCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, events := memstore.New(), new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		transactor := transactorFunc(func(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
			return store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
				if err := fn(ctx, tx); err != nil {
					return err
				}
				time.Sleep(time.Minute)
				_, err := locker.TryAcquire(ctx, "invoice:42")
				wantErr(t, err, locks.ErrHeld)
				return nil
			})
		})
		err := locker.TryDoTx(t.Context(), transactor, "invoice:42", fails(nil))
		if err != nil {
			t.Errorf("TryDoTx of work that is committed: %v", err)
		}
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
		wantCount(t, events, locks.EventReleaseFailed, 0)
	})
}

func TestDoTxBadInput(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	locker := newLocker(t, store)
	work := func(context.Context, locks.Tx, *locks.Lease) error { t.Error("ran"); return nil }
	for name, do := range map[string]func(context.Context, locks.Transactor, string, workTx, ...locks.AcquireOption) error{
		"DoTx": locker.DoTx, "TryDoTx": locker.TryDoTx,
	} {
		for field, err := range map[string]error{
			"transactor": do(t.Context(), nil, "invoice:42", work),
			"function":   do(t.Context(), store, "invoice:42", nil),
			"resource":   do(t.Context(), store, "", work),
			"option":     do(t.Context(), store, "invoice:42", work, nil),
		} {
			var invalid *locks.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s: %v, want an InvalidError for the %s", name, err, field)
			}
		}
	}
}

// Work that releases its lease by itself, as it would under Do, is committed all the same.
func TestTryDoTxWhoseWorkReleases(t *testing.T) {
	for name, release := range map[string]func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error{
		"in the transaction": func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error { return lease.ReleaseTx(ctx, tx) },
		"by itself": func(ctx context.Context, _ locks.Tx, lease *locks.Lease) error {
			if err := lease.Release(ctx); !errors.Is(err, locks.ErrPending) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				if err := locker.TryDoTx(t.Context(), store, "invoice:42", release); err != nil {
					t.Errorf("TryDoTx: %v", err)
				}
				synctest.Wait()
				if n := store.Rows(); n != 0 {
					t.Errorf("%d rows, want none", n)
				}
			})
		})
	}
}

// Work that goes on past its lease is rolled back, also where it has released what was lost and says that all is well.
func TestTryDoTxWhoseWorkReleasesWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		err := locker.TryDoTx(t.Context(), store, "invoice:42", func(_ context.Context, _ locks.Tx, lease *locks.Lease) error {
			time.Sleep(locks.DefaultTTL)
			wantErr(t, lease.Release(context.Background()), locks.ErrLost)
			return nil
		})
		wantErr(t, err, locks.ErrLost)
		if n := store.Rows(); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}
