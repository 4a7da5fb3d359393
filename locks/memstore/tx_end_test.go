package memstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// TestTxSavepoint shows what a savepoint's rollback and release do, also with what is done through the outer Tx
// meanwhile, and whom each tells.
func TestTxSavepoint(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	guarded := acquire(t, store, "guarded", "worker-1")
	var told []string
	tell := func(name string) func(locks.Outcome) {
		return func(outcome locks.Outcome) { told = append(told, name+" "+outcome.String()) }
	}
	savepointOf := func(tx *memstore.Tx) *memstore.Tx {
		t.Helper()
		savepoint, err := tx.Savepoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return savepoint
	}
	change := func(tx *memstore.Tx, resource string) {
		t.Helper()
		if _, err := tx.Acquire(t.Context(), request(resource, "worker-1")); err != nil {
			t.Fatal(err)
		}
		tx.OnEnd(tell(resource))
	}
	tx := begin(t, store)
	change(tx, "outer")

	savepoint := savepointOf(tx)
	change(savepoint, "inner")
	change(tx, "inner through outer")
	change(savepointOf(savepoint), "innermost")
	wantIs(t, "guard", savepoint.Guard(t.Context(), guarded.Grant()), nil)
	wantIs(t, "rollback", savepoint.Rollback(t.Context()), nil)
	wantIs(t, "release of what was guarded", store.Release(t.Context(), guarded.Grant()), nil)
	for _, resource := range []string{"inner", "inner through outer", "innermost"} {
		acquire(t, store, resource, "worker-2")
	}
	savepoint.OnEnd(tell("late"))

	released := savepointOf(tx)
	change(released, "kept")
	wantIs(t, "commit", released.Commit(t.Context()), nil)
	_, err := released.Acquire(t.Context(), request("after", "worker-1"))
	wantIs(t, "acquire in a savepoint that is over", err, locks.ErrInvalid)
	released.OnEnd(tell("kept, late"))
	open := savepointOf(tx)
	change(open, "open")
	wantIs(t, "commit", tx.Commit(t.Context()), nil)
	open.OnEnd(tell("after the end"))

	want := []string{
		"inner rolled back", "inner through outer rolled back", "innermost rolled back", "late rolled back",
		"outer committed", "kept committed", "kept, late committed", "open committed", "after the end committed",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	for _, resource := range []string{"outer", "kept", "open"} {
		if lock, err := store.Get(t.Context(), resource); err != nil || lock.Owner != "worker-1" {
			t.Errorf("Get(%q) = %+v, %v, want worker-1's", resource, lock, err)
		}
	}
}

// TestTxOver: a transaction that has ended refuses everything, and nothing changes.
func TestTxOver(t *testing.T) {
	t.Parallel()
	ends := map[string]func(context.Context, *memstore.Tx) error{
		"committed":   func(ctx context.Context, tx *memstore.Tx) error { return tx.Commit(ctx) },
		"rolled back": func(ctx context.Context, tx *memstore.Tx) error { return tx.Rollback(ctx) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, store := t.Context(), memstore.New()
			grant := acquire(t, store, "job:42", "worker-1").Grant()
			tx := begin(t, store)
			wantIs(t, "end", end(ctx, tx), nil)
			for what, do := range map[string]func() error{
				"acquire":   func() error { _, err := tx.Acquire(ctx, request("job:43", "worker-1")); return err },
				"renew":     func() error { _, err := tx.Renew(ctx, grant, 2*time.Hour); return err },
				"release":   func() error { return tx.Release(ctx, grant) },
				"guard":     func() error { return tx.Guard(ctx, grant) },
				"savepoint": func() error { _, err := tx.Savepoint(ctx); return err },
				"commit":    func() error { return tx.Commit(ctx) },
				"rollback":  func() error { return tx.Rollback(ctx) },
			} {
				var invalid *locks.InvalidError
				if err := do(); !errors.As(err, &invalid) || invalid.Field != "transaction" {
					t.Errorf("%s: %v, want an InvalidError for the transaction", what, err)
				}
			}
			wantIs(t, "release", store.Release(ctx, grant), nil)
			if n := store.Rows(); n != 0 {
				t.Errorf("%d rows, want none", n)
			}
		})
	}
}

// TestTxBadInput: in a transaction a grant names its token, and a context that has ended does nothing but roll back.
func TestTxBadInput(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), memstore.New()
	acquire(t, store, "job:42", "worker-1")
	tx := begin(t, store)
	grant := locks.Grant{Resource: "job:42", Owner: "worker-1", Token: locks.AnyToken}
	_, err := tx.Renew(ctx, grant, time.Hour)
	wantIs(t, "renew", err, locks.ErrInvalid)
	wantIs(t, "release", tx.Release(ctx, grant), locks.ErrInvalid)
	wantIs(t, "guard", tx.Guard(ctx, grant), locks.ErrInvalid)
	wantIs(t, "guard of nothing", tx.Guard(ctx, locks.Grant{}), locks.ErrInvalid)
	_, err = tx.Acquire(ctx, locks.Request{})
	wantIs(t, "acquire", err, locks.ErrInvalid)
	wantIs(t, "InTx", store.InTx(ctx, nil), locks.ErrInvalid)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = store.Begin(ended)
	wantIs(t, "begin", err, context.Canceled)
	_, err = tx.Acquire(ended, request("job:43", "worker-1"))
	wantIs(t, "acquire", err, context.Canceled)
	wantIs(t, "commit", tx.Commit(ended), context.Canceled)
	wantIs(t, "rollback", tx.Rollback(ended), nil)
}

func TestInTx(t *testing.T) {
	t.Parallel()
	fault := errors.New("disk is full")
	for name, test := range map[string]struct {
		fn      func() error
		ended   bool // the context, after fn
		err     error
		panics  any
		outcome locks.Outcome
	}{
		"nil":           {fn: func() error { return nil }, outcome: locks.Committed},
		"error":         {fn: func() error { return fault }, err: fault, outcome: locks.RolledBack},
		"panic":         {fn: func() error { panic(fault) }, panics: fault, outcome: locks.RolledBack},
		"ended context": {fn: func() error { return nil }, ended: true, err: context.Canceled, outcome: locks.RolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			var outcome locks.Outcome
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			panicked := func() (panicked any) {
				defer func() { panicked = recover() }()
				err = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
					if _, err := tx.Acquire(ctx, request("job:42", "worker-1")); err != nil {
						t.Error(err)
					}
					tx.OnEnd(func(o locks.Outcome) { outcome = o })
					if test.ended {
						cancel()
					}
					return test.fn()
				})
				return nil
			}()
			wantIs(t, "InTx", err, test.err)
			if panicked != test.panics {
				t.Errorf("panicked with %v, want %v", panicked, test.panics)
			}
			if outcome != test.outcome {
				t.Errorf("told %v, want %v", outcome, test.outcome)
			}
			if rows := store.Rows(); (rows == 1) != (test.outcome == locks.Committed) {
				t.Errorf("%d rows after it was %v", rows, test.outcome)
			}
		})
	}
}
