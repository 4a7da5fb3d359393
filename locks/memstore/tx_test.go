package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func request(resource, owner string) locks.Request {
	return locks.Request{Resource: resource, Owner: owner, Attempt: "1", TTL: time.Hour}
}

func acquire(t *testing.T, store locks.Store, resource, owner string) locks.Lock {
	t.Helper()
	lock, err := store.Acquire(t.Context(), request(resource, owner))
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func wantIs(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestTxKeepsOthersOff shows what a call outside answers, at once, about a lease that a transaction has to do with.
func TestTxKeepsOthersOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do    func(ctx context.Context, tx *memstore.Tx, grant locks.Grant) error
		renew error // of a renewal by the holder outside
	}{
		"renewed": {do: func(ctx context.Context, tx *memstore.Tx, grant locks.Grant) error {
			_, err := tx.Renew(ctx, grant, 2*time.Hour)
			return err
		}, renew: locks.ErrBusy},
		"released": {do: func(ctx context.Context, tx *memstore.Tx, grant locks.Grant) error {
			return tx.Release(ctx, grant)
		}, renew: locks.ErrBusy},
		"guarded": {do: func(ctx context.Context, tx *memstore.Tx, grant locks.Grant) error {
			return tx.Guard(ctx, grant)
		}},
		"acquired anew": {do: func(ctx context.Context, tx *memstore.Tx, grant locks.Grant) error {
			_, err := tx.Acquire(ctx, locks.Request{Resource: grant.Resource, Owner: grant.Owner, Attempt: "2", TTL: time.Hour})
			return err
		}, renew: locks.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			lock := acquire(t, store, "job:42", "worker-1")
			tx := begin(t, store)
			if err := test.do(t.Context(), tx, lock.Grant()); err != nil {
				t.Fatal(err)
			}
			_, err := store.Renew(t.Context(), lock.Grant(), time.Hour)
			wantIs(t, "renew", err, test.renew)
			wantIs(t, "release", store.Release(t.Context(), lock.Grant()), locks.ErrGuarded)
			wantIs(t, "release by attempt", store.ReleaseAttempt(t.Context(), "job:42", "worker-1", "1"), locks.ErrGuarded)
			_, err = store.ForceRelease(t.Context(), "job:42", lock.Token)
			wantIs(t, "force release", err, locks.ErrGuarded)
			_, err = store.Acquire(t.Context(), request("job:42", "worker-2"))
			var held *locks.HeldError
			if !errors.As(err, &held) || held.Holder == nil || held.Holder.Token != lock.Token {
				t.Errorf("acquire: %v, want held by token %d", err, lock.Token)
			}
			if got, err := store.Get(t.Context(), "job:42"); err != nil || got.Token != lock.Token {
				t.Errorf("Get: %+v, %v, want token %d", got, err, lock.Token)
			}

			store.Expire("job:42")
			_, err = store.Acquire(t.Context(), request("job:42", "worker-2"))
			if !errors.As(err, &held) || held.Holder != nil {
				t.Errorf("acquire past the end of the lease: %v, want held by nobody known", err)
			}
			if n, err := store.Purge(t.Context(), 10); n != 0 || err != nil {
				t.Errorf("purged %d rows, %v, want none", n, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, err := store.Purge(t.Context(), 10); n != 1 || err != nil {
				t.Errorf("purged %d rows after the rollback, %v, want 1", n, err)
			}
			acquire(t, store, "job:42", "worker-2")
		})
	}
}

// TestTxCommits shows what is the case after the commit of each change.
func TestTxCommits(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	renewed, released := acquire(t, store, "renewed", "worker-1"), acquire(t, store, "released", "worker-1")
	tx := begin(t, store)
	pending, err := tx.Acquire(t.Context(), request("acquired", "worker-1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Get(t.Context(), "acquired")
	wantIs(t, "Get before the commit", err, locks.ErrNotFound)
	_, err = tx.Renew(t.Context(), renewed.Grant(), 2*time.Hour)
	wantIs(t, "renew", err, nil)
	wantIs(t, "release", tx.Release(t.Context(), released.Grant()), nil)
	wantIs(t, "commit", tx.Commit(t.Context()), nil)
	if got, err := store.Get(t.Context(), "acquired"); err != nil || got.Grant() != pending.Grant() {
		t.Errorf("acquired: %+v, %v, want %+v", got, err, pending)
	}
	if got, err := store.Get(t.Context(), "renewed"); err != nil || !got.ExpiresAt.After(renewed.ExpiresAt) {
		t.Errorf("renewed: %+v, %v, want an end later than %v", got, err, renewed.ExpiresAt)
	}
	if rows := store.Rows(); rows != 2 {
		t.Errorf("%d rows, want 2", rows)
	}
	acquire(t, store, "released", "worker-2")
}

// TestTxTwoGuards: both may guard, and neither can then release, nor wait for the other.
func TestTxTwoGuards(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	lock := acquire(t, store, "job:42", "worker-1")
	first, second := begin(t, store), begin(t, store)
	for _, tx := range []*memstore.Tx{first, second} {
		wantIs(t, "guard", tx.Guard(t.Context(), lock.Grant()), nil)
		_, err := tx.Acquire(t.Context(), request("job:42", "worker-1"))
		wantIs(t, "acquire where it is guarded", err, locks.ErrGuarded)
	}
	for _, tx := range []*memstore.Tx{first, second} {
		wantIs(t, "release", tx.Release(t.Context(), lock.Grant()), locks.ErrGuarded)
	}
	wantIs(t, "commit", second.Commit(t.Context()), nil)
	wantIs(t, "release by the only guard", first.Release(t.Context(), lock.Grant()), nil)
	third := begin(t, store)
	wantIs(t, "guard of what is being released", third.Guard(t.Context(), lock.Grant()), locks.ErrBusy)
	wantIs(t, "commit", first.Commit(t.Context()), nil)
	wantIs(t, "guard of what is released", third.Guard(t.Context(), lock.Grant()), locks.ErrNotHeld)
}

// TestTxGuardBesideARenewal: a renewal that is not committed yet is in no guard's way.
func TestTxGuardBesideARenewal(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	lock := acquire(t, store, "job:42", "worker-1")
	renews, guards := begin(t, store), begin(t, store)
	_, err := renews.Renew(t.Context(), lock.Grant(), time.Hour)
	wantIs(t, "renew", err, nil)
	wantIs(t, "guard", guards.Guard(t.Context(), lock.Grant()), nil)
	_, err = guards.Renew(t.Context(), lock.Grant(), time.Hour)
	wantIs(t, "a second renewal", err, locks.ErrBusy)
	wantIs(t, "release beside a guard", renews.Release(t.Context(), lock.Grant()), locks.ErrGuarded)
	wantIs(t, "commit", renews.Commit(t.Context()), nil)
}

// TestTxSeesItsOwnChanges: the newest of them, in the transaction and after its commit.
func TestTxSeesItsOwnChanges(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), memstore.New()
	tx := begin(t, store)
	first, err := tx.Acquire(ctx, request("job:42", "worker-1"))
	wantIs(t, "acquire", err, nil)
	savepoint, err := tx.Savepoint(ctx)
	wantIs(t, "savepoint", err, nil)
	_, err = savepoint.Acquire(ctx, request("job:42", "worker-2"))
	wantIs(t, "acquire of what the transaction holds", err, locks.ErrHeld)
	wantIs(t, "release", savepoint.Release(ctx, first.Grant()), nil)
	wantIs(t, "guard of what is released", savepoint.Guard(ctx, first.Grant()), locks.ErrNotHeld)
	second, err := savepoint.Acquire(ctx, request("job:42", "worker-2"))
	if err != nil || second.Token <= first.Token || second.ID == first.ID {
		t.Errorf("acquired anew: %+v, %v, want a larger token and a row of its own after %+v", second, err, first)
	}
	wantIs(t, "commit", tx.Commit(ctx), nil)
	if got, err := store.Get(ctx, "job:42"); err != nil || got.Grant() != second.Grant() {
		t.Errorf("Get: %+v, %v, want %+v", got, err, second)
	}
}

// TestTxRefusedLeavesNoGate: a try that is refused in a transaction is in nobody's way afterwards.
func TestTxRefusedLeavesNoGate(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	lock := acquire(t, store, "job:42", "worker-1")
	tx := begin(t, store)
	_, err := tx.Acquire(t.Context(), request("job:42", "worker-2"))
	wantIs(t, "acquire", err, locks.ErrHeld)
	wantIs(t, "release", store.Release(t.Context(), lock.Grant()), nil)
	acquire(t, store, "job:42", "worker-3")
}

// TestTxMisused: what several goroutines do in one transaction, and end it meanwhile, leaves the store whole.
func TestTxMisused(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), memstore.New()
	for range 50 {
		tx := begin(t, store)
		var works sync.WaitGroup
		for i := range 8 {
			works.Go(func() {
				resource := string(rune('a' + i%3))
				savepoint, err := tx.Savepoint(ctx)
				if err != nil {
					return
				}
				if lock, err := savepoint.Acquire(ctx, request(resource, "worker-1")); err == nil {
					_ = savepoint.Guard(ctx, lock.Grant())
					_ = savepoint.Release(ctx, lock.Grant())
				}
				switch i {
				case 5:
					_ = savepoint.Rollback(ctx)
				case 7:
					_ = tx.Commit(ctx)
				default:
					_ = savepoint.Commit(ctx)
				}
			})
		}
		works.Wait()
		_ = tx.Rollback(ctx)
	}
	for _, resource := range []string{"a", "b", "c"} {
		lock, err := store.Acquire(ctx, locks.Request{Resource: resource, Owner: "worker-1", Attempt: "last", TTL: time.Hour})
		if err != nil {
			t.Errorf("acquire after all: %v", err)
		}
		wantIs(t, "release", store.Release(ctx, lock.Grant()), nil)
	}
}
