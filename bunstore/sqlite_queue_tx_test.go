package bunstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

var errUndo = errors.New("undo it")

func TestATicketInATransaction(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t), seldom)
	queued(t, store, request("r", "a"))
	queued(t, store, request("r", "b"))
	run := func(fail error) {
		t.Helper()
		err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			for _, owner := range []string{"b", "outsider"} {
				_, err := tx.Acquire(ctx, request("r", owner))
				var held *locks.HeldError
				if !errors.As(err, &held) || held.Holder != nil {
					t.Errorf("Acquire by %s = %v, want held without a holder", owner, err)
				}
			}
			lock, err := tx.Acquire(ctx, request("r", "a"))
			if err != nil {
				t.Fatalf("Acquire = %v", err)
			}
			if again, err := tx.Acquire(ctx, request("r", "a")); err != nil || again.Token != lock.Token {
				t.Errorf("Acquire again = %+v, %v; want token %d", again, err, lock.Token)
			}
			return fail
		})
		if !errors.Is(err, fail) {
			t.Fatalf("RunInTx = %v", err)
		}
	}
	run(errUndo)
	wantQueue(t, store, "r", "a", "b") // it is back
	wantRefused(t, store, request("r", "b"))
	run(nil)
	wantQueue(t, store, "r", "b")
}

// Through a transaction that the host has begun itself, and that is not a writer from its start.
func TestATicketInAHostsTransaction(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom)
	queued(t, store, request("r", "a"))
	handle, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := store.Tx(handle)
	if err != nil {
		t.Fatal(err)
	}
	err = tx.Savepoint(t.Context(), func(ctx context.Context, tx *bunstore.Tx) error {
		if _, err := tx.Acquire(ctx, request("r", "a")); err != nil {
			t.Errorf("Acquire in a savepoint = %v", err)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	if _, err := tx.Acquire(t.Context(), request("r", "outsider")); !errors.Is(err, locks.ErrHeld) {
		t.Errorf("Acquire by an outsider = %v, want held: the ticket is back", err)
	}
	lock, err := tx.Acquire(t.Context(), request("r", "a"))
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	err = handle.Commit()
	tx.End(bunstore.OutcomeOf(err))
	if err != nil {
		t.Fatal(err)
	}
	wantQueue(t, store, "r")
	release(t, store, lock)
}

// A release in a transaction is none before the commit.
func TestWhoWaitsIsToldAfterTheCommit(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t), seldom)
	held := acquire(t, store, request("r", "holder"))
	place := queued(t, store, request("r", "a"))
	for _, fail := range []error{errUndo, nil} {
		err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			if err := tx.Release(ctx, held.Grant()); err != nil {
				t.Fatalf("Release = %v", err)
			}
			return fail
		})
		if !errors.Is(err, fail) {
			t.Fatalf("RunInTx = %v", err)
		}
		if fail != nil {
			select {
			case <-place.Turn():
				t.Error("told of a release that was undone")
			default:
			}
		}
	}
	wantTurn(t, place)
	acquire(t, store, request("r", "a"))
}
