package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockstest"
	"github.com/rowlease/rowlease/locks/memstore"
)

// TestStore runs the promises. A memstore is its own database: all stores of a test are the same one.
func TestStore(t *testing.T) {
	t.Parallel()
	lockstest.Run(t, lockstest.Harness{
		Open: func(_ testing.TB, n int) []locks.Store {
			store := memstore.New()
			stores := make([]locks.Store, n)
			for i := range stores {
				stores[i] = store
			}
			return stores
		},
		Expire:       func(_ testing.TB, s locks.Store, resource string) { s.(*memstore.Store).Expire(resource) },
		DeleteRow:    func(_ testing.TB, s locks.Store, resource string) { s.(*memstore.Store).DeleteRow(resource) },
		Truncate:     func(_ testing.TB, s locks.Store) { s.(*memstore.Store).Truncate() },
		Rows:         func(_ testing.TB, s locks.Store) int { return s.(*memstore.Store).Rows() },
		ExpireTicket: func(_ testing.TB, s locks.Store, number int64) { s.(*memstore.Store).ExpireTicket(number) },
		ExpireShare: func(_ testing.TB, s locks.Store, resource, owner string) {
			s.(*memstore.Store).ExpireShare(resource, owner)
		},
		Begin: func(tb testing.TB, s locks.Store) lockstest.Transaction {
			return transaction{begin(tb, s.(*memstore.Store))}
		},
		Parallel: true,
	})
}

// transaction is a Tx as the suite knows it.
type transaction struct{ *memstore.Tx }

func (tx transaction) Savepoint(ctx context.Context) (lockstest.Transaction, error) {
	savepoint, err := tx.Tx.Savepoint(ctx)
	return transaction{savepoint}, err
}

// Works has no statement to run but a savepoint.
func (tx transaction) Works(ctx context.Context) error {
	savepoint, err := tx.Tx.Savepoint(ctx)
	if err != nil {
		return err
	}
	return savepoint.Commit(ctx)
}

// begin opens a transaction that ends with the test.
func begin(tb testing.TB, store *memstore.Store) *memstore.Tx {
	tb.Helper()
	tx, err := store.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// TestEnd shows to the nanosecond, in virtual time, that expired means gone: now >= expiresAt.
func TestEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store // the zero value is ready
		lock, err := store.Acquire(t.Context(), locks.Request{Resource: "job:42", Owner: "worker-1", Attempt: "1", TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		if got, err := store.Get(t.Context(), "job:42"); err != nil || got.Remaining != time.Nanosecond {
			t.Errorf("a nanosecond before its end: %+v, %v, want 1ns left", got, err)
		}
		time.Sleep(time.Nanosecond)
		if got, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
			t.Errorf("at its end: %+v, %v, want ErrNotFound", got, err)
		}
		if _, err := store.Renew(t.Context(), lock.Grant(), time.Hour); !errors.Is(err, locks.ErrExpired) {
			t.Errorf("renewed at its end: %v, want ErrExpired", err)
		}
		second, err := store.Acquire(t.Context(), locks.Request{Resource: "job:42", Owner: "worker-2", Attempt: "1", TTL: time.Hour})
		if err != nil || second.AcquiredAt != lock.ExpiresAt {
			t.Errorf("taken over at its end: %+v, %v, want it acquired at %v", second, err, lock.ExpiresAt)
		}
	})
}

// TestBackDoors shows that the back doors do nothing where there is nothing.
func TestBackDoors(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	store.Expire("job:42")
	store.DeleteRow("job:42")
	store.Truncate()
	if n := store.Rows(); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	request := locks.Request{Resource: "job:42", Owner: "worker-1", Attempt: "1", TTL: time.Hour}
	if _, err := store.Acquire(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	store.Expire("job:42")
	store.Expire("job:42")
	if n := store.Rows(); n != 1 {
		t.Errorf("%d rows, want the ended one", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Acquire(ended, locks.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want the context's before all others", err)
	}
}
