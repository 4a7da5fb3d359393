package locks_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Two hundred rounds with a slow database, and never a loss: the interval leaves room.
func TestRenewalKeepsALeaseForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(50 * time.Millisecond)
			return call()
		}
		events := new(eventLog)
		locker := newLocker(t, store, locks.WithTTL(300*time.Millisecond), locks.WithObserver(events))
		lease := tryAcquire(t, locker, "job:42")
		time.Sleep(200 * 100 * time.Millisecond)
		wantHeldBy(t, store, lease)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
		if n := events.count(locks.EventRenewed); n < 199 {
			t.Errorf("%d renewals in 200 intervals", n)
		}
		if lock := lease.Lock(); lock.Token != lease.Token() || time.Until(lock.ExpiresAt) <= 0 {
			t.Errorf("Lock() = %+v, want the record of the last renewal", lock)
		}
	})
}

// The holder is told before its lease can end in the store, whatever its calls do.
func TestHolderIsToldInTime(t *testing.T) {
	tests := map[string]func(context.Context, func() (locks.Lock, error)) (locks.Lock, error){
		"every renewal fails": func(context.Context, func() (locks.Lock, error)) (locks.Lock, error) {
			return locks.Lock{}, errFault
		},
		"every renewal hangs until its context ends": func(ctx context.Context, _ func() (locks.Lock, error)) (locks.Lock, error) {
			<-ctx.Done()
			return locks.Lock{}, ctx.Err()
		},
		"every renewal hangs beyond its context": func(context.Context, func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(10 * time.Minute)
			return locks.Lock{}, errFault
		},
		"every renewal panics": func(context.Context, func() (locks.Lock, error)) (locks.Lock, error) {
			panic("driver")
		},
		"every answer comes after the deadline": func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(28 * time.Second)
			return call()
		},
	}
	for name, hook := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New(), onRenew: hook}
				events := new(eventLog)
				locker := newLocker(t, store, locks.WithObserver(events))
				start := time.Now()
				lease := tryAcquire(t, locker, "job:42")
				<-lease.Context().Done()
				if told := time.Since(start); told != 27*time.Second {
					t.Errorf("told after %v, want TTL less margin", told)
				}
				wantErr(t, context.Cause(lease.Context()), locks.ErrLost, locks.ErrExpired)
				wantErr(t, lease.Renew(t.Context()), locks.ErrLost)
				time.Sleep(time.Hour)
				if n := events.count(locks.EventLost); n != 1 {
					t.Errorf("told the observer %d times, want once", n)
				}
			})
		})
	}
}

func TestAFewFailedRenewalsAreNoLoss(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"error":             func(context.Context) error { return errFault },
		"panic":             func(context.Context) error { panic("driver") },
		"hang until told":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"serialization":     func(context.Context) error { return locks.ErrSerialization },
		"busy":              func(context.Context) error { return locks.ErrBusy },
		"driver's deadline": func(context.Context) error { return context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New()}
				calls := 0
				store.onRenew = func(ctx context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
					if calls++; calls%3 != 0 {
						if err := fail(ctx); err != nil {
							return locks.Lock{}, err
						}
					}
					return call()
				}
				locker := newLocker(t, store)
				lease := tryAcquire(t, locker, "job:42")
				time.Sleep(10 * time.Minute)
				if err := lease.Err(); err != nil {
					t.Errorf("lease ended: %v", err)
				}
				wantHeldBy(t, store, lease)
			})
		})
	}
}

// Only the store's word ends a lease early, at the next renewal.
func TestTheStoresWordEndsTheLease(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(t *testing.T, store *memstore.Store, lease *locks.Lease)
		want error
	}{
		"row deleted": {func(_ *testing.T, store *memstore.Store, _ *locks.Lease) { store.DeleteRow("job:42") }, locks.ErrNotHeld},
		"expired":     {func(_ *testing.T, store *memstore.Store, _ *locks.Lease) { store.Expire("job:42") }, locks.ErrExpired},
		"forced": {func(t *testing.T, store *memstore.Store, lease *locks.Lease) {
			if _, err := store.ForceRelease(t.Context(), "job:42", lease.Token()); err != nil {
				t.Fatal(err)
			}
		}, locks.ErrNotHeld},
		"taken over": {func(t *testing.T, store *memstore.Store, _ *locks.Lease) {
			store.Expire("job:42")
			acquireDirectly(t, store, "job:42", "other")
		}, locks.ErrNotOwner},
		"superseded": {func(t *testing.T, store *memstore.Store, lease *locks.Lease) {
			acquireDirectly(t, store, "job:42", lease.Owner())
		}, locks.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				lease := tryAcquire(t, locker, "job:42")
				time.Sleep(15 * time.Second)
				test.do(t, store, lease)
				before, errBefore := store.Get(t.Context(), "job:42")
				ended := time.Now()
				<-lease.Context().Done()
				if after := time.Since(ended); after > 10*time.Second {
					t.Errorf("told after %v, want at most an interval", after)
				}
				wantErr(t, lease.Err(), test.want, locks.ErrLost)
				wantErr(t, lease.Release(t.Context()), test.want)
				after, errAfter := store.Get(t.Context(), "job:42")
				if before.Grant() != after.Grant() || !errors.Is(errAfter, errBefore) {
					t.Errorf("the late holder changed %+v to %+v", before, after)
				}
			})
		})
	}
}

func acquireDirectly(t *testing.T, store locks.Store, resource, owner string) locks.Lock {
	t.Helper()
	lock, err := store.Acquire(t.Context(), locks.Request{Resource: resource, Owner: owner, Attempt: "direct", TTL: time.Hour})
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lock
}

func TestRenewalsOfALeaseNeverOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		var at, most atomic.Int32
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			time.Sleep(900 * time.Millisecond)
			return call()
		}
		locker := newLocker(t, store, locks.WithCallLimit(time.Second))
		lease := tryAcquire(t, locker, "job:42")
		for range 100 {
			go func() { _ = lease.Renew(t.Context()) }()
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
		if n := most.Load(); n != 1 {
			t.Errorf("%d renewals at once, want 1", n)
		}
	})
}

func TestRenewMovesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42", locks.WithoutRenewal())
		time.Sleep(20 * time.Second)
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatalf("Renew: %v", err)
		}
		if left := time.Until(lease.Deadline()); left != 27*time.Second {
			t.Errorf("trusted for %v, want TTL less margin", left)
		}
		renewed := time.Now()
		<-lease.Context().Done()
		if after := time.Since(renewed); after != 27*time.Second {
			t.Errorf("without renewal the context ended after %v", after)
		}
	})
}

func TestRenewAfterReleaseIsRefused(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	lease := tryAcquire(t, locker, "job:42")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, lease.Renew(t.Context()), locks.ErrReleased)
	wantFree(t, store, "job:42")
}

func TestRenewUnderAnEndedContextChangesNothing(t *testing.T) {
	locker := newLocker(t, memstore.New())
	lease := tryAcquire(t, locker, "job:42")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, lease.Renew(ctx), context.Canceled)
	if err := lease.Err(); err != nil {
		t.Errorf("lease ended: %v", err)
	}
}

func TestMaxHoldEndsTheContextAndTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42", locks.WithMaxHold(time.Minute))
		start := time.Now()
		<-lease.Context().Done()
		if held := time.Since(start); held != time.Minute {
			t.Errorf("context ended after %v, want a minute", held)
		}
		wantErr(t, lease.Err(), locks.ErrMaxHold)
		wantErr(t, lease.Renew(t.Context()), locks.ErrMaxHold)
		wantHeldBy(t, store, lease) // until its TTL: the work may still be ending
		time.Sleep(locks.DefaultTTL)
		wantFree(t, store, "job:42")
	})
}

// A renewal that panics in the observer, or an observer that panics, cannot stop the next one.
func TestAPanickingObserverStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		observer := locks.ObserverFunc(func(context.Context, locks.Event) { panic("log handler") })
		locker := newLocker(t, store, locks.WithObserver(observer))
		lease := tryAcquire(t, locker, "job:42")
		time.Sleep(10 * time.Minute)
		wantHeldBy(t, store, lease)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// One call that hangs, with a driver that ignores its context, leaves time for another.
func TestAHungRenewalIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			if calls.Add(1) == 1 {
				time.Sleep(time.Hour)
			}
			return call()
		}
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		time.Sleep(30 * time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
	})
}

// Answers that come after their call was given up are answers: they keep the lease, or end it.
func TestLateAnswersCount(t *testing.T) {
	for name, deleted := range map[string]bool{"renewed": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New()}
				store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
					lock, err := call()
					time.Sleep(7 * time.Second) // beyond the call limit
					return lock, err
				}
				locker := newLocker(t, store)
				lease := tryAcquire(t, locker, "job:42")
				if deleted {
					store.DeleteRow("job:42")
				}
				time.Sleep(18 * time.Second) // the first answer came after 17
				if ended := lease.Err() != nil; ended != deleted {
					t.Errorf("lease.Err() = %v", lease.Err())
				}
				if !deleted {
					time.Sleep(10 * time.Minute)
					wantHeldBy(t, store, lease)
				}
			})
		})
	}
}

// A renewal that finds the row gone because the lease is being released is told that, and no loss.
func TestRenewDuringARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onRenew = func(_ context.Context, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(time.Second)
			return call()
		}
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		go func() {
			time.Sleep(500 * time.Millisecond)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}()
		if err := lease.Renew(t.Context()); !errors.Is(err, locks.ErrReleased) || errors.Is(err, locks.ErrLost) {
			t.Errorf("Renew = %v, want ErrReleased", err)
		}
	})
}

// A store that says more remains than was asked for is not believed.
func TestTrustIsNoLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			lock.Remaining = time.Hour
			return lock, err
		}
		lease := tryAcquire(t, newLocker(t, store), "job:42")
		if left := time.Until(lease.Deadline()); left != 27*time.Second {
			t.Errorf("trusted for %v, want TTL less margin", left)
		}
	})
}

// Of two observers each is told, whatever the other does; the logger hears of a panic, and may itself be what is broken.
func TestObserversDoNotDependOnEachOther(t *testing.T) {
	events, log := new(eventLog), new(strings.Builder)
	broken := locks.ObserverFunc(func(context.Context, locks.Event) { panic("metrics") })
	locker := newLocker(t, memstore.New(), locks.WithObserver(broken), locks.WithObserver(events),
		locks.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	tryAcquire(t, locker, "job:42")
	if events.count(locks.EventAcquired) != 1 {
		t.Error("the second observer was not told")
	}
	if !strings.Contains(log.String(), "panic=metrics") {
		t.Errorf("the logger was told %q, want the panic", log)
	}

	locker = newLocker(t, memstore.New(), locks.WithLogger(slog.New(panickingHandler{slog.NewTextHandler(log, nil)})))
	tryAcquire(t, locker, "job:42")
}

type panickingHandler struct{ slog.Handler }

func (panickingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (panickingHandler) Handle(context.Context, slog.Record) error {
	panic("the log is broken")
}
