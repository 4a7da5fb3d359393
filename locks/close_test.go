package locks_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestCloseEndsContextsThenWaitsForTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		holder := tryAcquire(t, locker, "by hand")
		go func() {
			<-holder.Context().Done()
			wantErr(t, context.Cause(holder.Context()), locks.ErrClosed)
			time.Sleep(2 * time.Minute) // far beyond the TTL: it must stay held while the work winds up
			wantHeldBy(t, store, holder)
			if err := holder.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}()
		var work sync.WaitGroup
		work.Go(func() {
			err := locker.Do(t.Context(), "by Do", func(ctx context.Context, lease *locks.Lease) error {
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), locks.ErrClosed)
				time.Sleep(time.Minute)
				wantHeldBy(t, store, lease)
				return nil
			})
			if err != nil {
				t.Errorf("Do: %v", err)
			}
		})
		work.Go(func() {
			_, err := locker.Acquire(t.Context(), "by hand")
			wantErr(t, err, locks.ErrClosed)
		})
		synctest.Wait()
		start := time.Now()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if waited := time.Since(start); waited != 2*time.Minute {
			t.Errorf("Close returned after %v, want when the last work had ended", waited)
		}
		wantFree(t, store, "by hand")
		wantFree(t, store, "by Do")
		_, err := locker.TryAcquire(t.Context(), "new")
		wantErr(t, err, locks.ErrClosed)
		wantErr(t, locker.Do(t.Context(), "new", func(context.Context, *locks.Lease) error { return nil }), locks.ErrClosed)
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close again: %v", err)
		}
		work.Wait()
	})
}

// Three leases that nobody releases; one cannot be released. The others are, and Close says what went wrong.
func TestCloseReleasesTheRestWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		locker := newLocker(t, store)
		tryAcquire(t, locker, "a")
		tryAcquire(t, locker, "b")
		tryAcquire(t, locker, "c")
		calls := 0
		var mu sync.Mutex
		store.onRelease = func(_ context.Context, call func() error) error {
			mu.Lock()
			calls++
			first := calls == 1
			mu.Unlock()
			if first {
				return locks.ErrInvalid
			}
			return call()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		err := locker.Close(ctx)
		wantErr(t, err, context.DeadlineExceeded, locks.ErrInvalid)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("Close returned after %v, want its context's minute", waited)
		}
		page, err := store.List(t.Context(), locks.ListQuery{})
		if err != nil || len(page.Locks) != 1 {
			t.Errorf("%d leases are left (%v), want the one that could not be released", len(page.Locks), err)
		}
	})
}

// Work that never returns holds Close up until its context ends, and no longer.
func TestCloseDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		stop := make(chan struct{})
		started := make(chan struct{})
		go func() {
			_ = locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { close(started); <-stop; return nil })
		}()
		<-started
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		wantErr(t, locker.Close(ctx), context.DeadlineExceeded)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("Close returned after %v, want a minute", waited)
		}
		wantFree(t, store, "job:42")
		close(stop)
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close after the work returned: %v", err)
		}
	})
}

// A lease that comes when the locker has closed is given back.
func TestCloseDuringAnAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(time.Second)
			return call()
		}
		locker := newLocker(t, store)
		go func() {
			_, err := locker.TryAcquire(t.Context(), "job:42")
			wantErr(t, err, locks.ErrClosed)
		}()
		synctest.Wait()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		wantFree(t, store, "job:42")
	})
}

func TestCloseDoesNotWaitForALeaseThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		store.DeleteRow("job:42")
		<-lease.Context().Done()
		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// Work under Do is waited for also when its lease is lost.
func TestCloseWaitsForWorkWhoseLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		returned := false
		go func() {
			_ = locker.Do(t.Context(), "job:42", func(ctx context.Context, _ *locks.Lease) error {
				store.DeleteRow("job:42")
				<-ctx.Done()
				time.Sleep(time.Minute)
				returned = true
				return nil
			})
		}()
		time.Sleep(20 * time.Second) // the loss was heard of at the renewal
		if err := locker.Close(t.Context()); err != nil || !returned {
			t.Errorf("Close = %v, the work has returned: %v", err, returned)
		}
	})
}
