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

func TestDoHoldsWhileTheWorkRunsAndReleasesAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		err := locker.Do(t.Context(), "job:42", func(ctx context.Context, lease *locks.Lease) error {
			time.Sleep(10 * time.Minute)
			wantHeldBy(t, store, lease)
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("Do: %v", err)
		}
		wantFree(t, store, "job:42")
	})
}

func TestDoReturnsTheWorksError(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	want := errors.New("no paper")
	if got := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return want }); got != want { //nolint:errorlint // the very error
		t.Errorf("Do = %v, want exactly the work's error", got)
	}
	wantFree(t, store, "job:42")
}

func TestDoReleasesWhenTheWorkPanicsOrExits(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v, want the work's panic", p)
			}
		}()
		_ = locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { panic("boom") })
	}()
	wantFree(t, store, "job:42")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { runtime.Goexit(); return nil })
	}()
	<-done
	wantFree(t, store, "job:42")
}

// A cancelled caller's work sees its context end; the row is freed when the work has returned, not before.
func TestDoWithACancelledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		err := locker.Do(ctx, "job:42", func(ctx context.Context, lease *locks.Lease) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			wantHeldBy(t, store, lease)
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, locks.ErrLost) {
			t.Errorf("Do = %v, want context.Canceled and no loss", err)
		}
		wantFree(t, store, "job:42")
	})
}

func TestDoTellsTheWorkThatItsLeaseIsLost(t *testing.T) {
	for name, ignore := range map[string]bool{"work stops": false, "work goes on and returns nil": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				locker := newLocker(t, store)
				err := locker.Do(t.Context(), "job:42", func(ctx context.Context, _ *locks.Lease) error {
					store.Expire("job:42")
					acquireDirectly(t, store, "job:42", "other")
					if ignore {
						time.Sleep(time.Hour)
						return nil
					}
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), locks.ErrNotOwner)
					return ctx.Err()
				})
				wantErr(t, err, locks.ErrLost, locks.ErrNotOwner)
				if _, err := store.Get(t.Context(), "job:42"); ignore == (err == nil) {
					t.Errorf("Get = %v; the other's lease lasts an hour and is nobody else's to end", err)
				}
			})
		})
	}
}

// The work was too short to hear of the loss by a renewal: the release tells.
func TestDoReportsALossThatOnlyTheReleaseSaw(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error {
		store.Expire("job:42")
		return nil
	})
	wantErr(t, err, locks.ErrExpired)
}

func TestDoIsContentWhenOnlyTheReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onRelease = func(context.Context, func() error) error { return errFault }
		events := new(eventLog)
		locker := newLocker(t, store, locks.WithObserver(events))
		if err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return nil }); err != nil {
			t.Errorf("Do = %v, want nil: the work is done", err)
		}
		if events.count(locks.EventReleaseFailed) != 1 {
			t.Error("the observer was not told")
		}
	})
}

func TestTryDoDoesNotRunTheWorkWhileHeld(t *testing.T) {
	locker := newLocker(t, memstore.New())
	tryAcquire(t, locker, "job:42")
	err := locker.TryDo(t.Context(), "job:42", func(context.Context, *locks.Lease) error {
		t.Error("the work ran")
		return nil
	})
	wantErr(t, err, locks.ErrHeld)
	wantErr(t, locker.Do(t.Context(), "other", nil), locks.ErrInvalid)
}

// The work's own error is told beside the loss.
func TestDoJoinsTheWorksErrorWithTheLoss(t *testing.T) {
	store := memstore.New()
	locker := newLocker(t, store)
	want := errors.New("no paper")
	err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error {
		store.Expire("job:42")
		return want
	})
	wantErr(t, err, want, locks.ErrExpired)
}
