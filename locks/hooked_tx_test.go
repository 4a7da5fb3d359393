package locks_test

import (
	"context"
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// hookedTx is a transaction whose acquires a test can delay, fail or lose, and whose end only the test tells.
type hookedTx struct {
	*memstore.Tx
	onAcquire func(ctx context.Context, call func() (locks.Lock, error)) (locks.Lock, error)
	onEnd     []func(locks.Outcome)
}

func (tx *hookedTx) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	if tx.onAcquire == nil {
		return tx.Tx.Acquire(ctx, request)
	}
	return tx.onAcquire(ctx, func() (locks.Lock, error) { return tx.Tx.Acquire(context.WithoutCancel(ctx), request) })
}

func (tx *hookedTx) OnEnd(fn func(locks.Outcome)) { tx.onEnd = append(tx.onEnd, fn) }

func (tx *hookedTx) tell(outcome locks.Outcome) {
	for _, fn := range tx.onEnd {
		fn(outcome)
	}
}

// begin opens a transaction that ends with the test.
func begin(t *testing.T, store *memstore.Store) *memstore.Tx {
	t.Helper()
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func tryAcquireTx(t *testing.T, locker *locks.Locker, tx locks.Tx, resource string) *locks.Lease {
	t.Helper()
	lease, err := locker.TryAcquireTx(t.Context(), tx, resource)
	if err != nil {
		t.Fatalf("TryAcquireTx(%q): %v", resource, err)
	}
	return lease
}

// endings are the two ways to end a transaction that its owner knows of.
var endings = map[locks.Outcome]func(*testing.T, *memstore.Tx){
	locks.Committed: func(t *testing.T, tx *memstore.Tx) {
		t.Helper()
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatalf("Commit: %v", err)
		}
	},
	locks.RolledBack: func(t *testing.T, tx *memstore.Tx) {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatalf("Rollback: %v", err)
		}
	},
}

func commit(t *testing.T, tx *memstore.Tx)   { t.Helper(); endings[locks.Committed](t, tx) }
func rollback(t *testing.T, tx *memstore.Tx) { t.Helper(); endings[locks.RolledBack](t, tx) }

func wantCount(t *testing.T, events *eventLog, kind locks.EventKind, want int) {
	t.Helper()
	if got := events.count(kind); got != want {
		t.Errorf("observers were told %q %d times, want %d", kind, got, want)
	}
}
