package bunstore_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockstest"
)

// suiteTx is a transaction that the suite opens as a host would: through bun, savepoints too.
type suiteTx struct {
	*bunstore.Tx
	store *bunstore.Store
	tx    bun.Tx
	outer *bunstore.Tx // nil for a transaction
}

func beginSuiteTx(tb testing.TB, db *bun.DB, store locks.Store) lockstest.Transaction {
	tb.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		tb.Fatalf("begin: %v", err)
	}
	tb.Cleanup(func() { _ = tx.Rollback() })
	handle, err := store.(*bunstore.Store).Tx(tx)
	if err != nil {
		tb.Fatalf("Tx: %v", err)
	}
	return suiteTx{handle, store.(*bunstore.Store), tx, nil}
}

func (s suiteTx) Commit(context.Context) error {
	err := s.tx.Commit()
	if s.outer == nil {
		s.End(bunstore.OutcomeOf(err))
	} else if err == nil { // a savepoint's end is that of its transaction
		s.outer.OnEnd(s.End)
	}
	return err
}

func (s suiteTx) Rollback(context.Context) error {
	err := s.tx.Rollback()
	s.End(locks.RolledBack)
	return err
}

func (s suiteTx) Savepoint(ctx context.Context) (lockstest.Transaction, error) {
	tx, err := s.tx.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	handle, err := s.store.Tx(tx)
	return suiteTx{handle, s.store, tx, s.Tx}, err
}

func (s suiteTx) Works(ctx context.Context) error {
	_, err := s.tx.ExecContext(ctx, "SELECT 1")
	return err
}
