package memstore

import (
	"context"
	"time"

	"github.com/rowlease/rowlease/locks"
)

var _ locks.Tx = (*Tx)(nil)

// Tx is a transaction on the memory of a store, or a savepoint in one: for tests and examples of what runs in a
// database's transaction elsewhere. It has no data but leases. Each call sees what is committed by then, as under READ
// COMMITTED, and what the transaction itself has changed.
//
// It never waits: where a database would, for a limit of the store's, it refuses at once, a renewal as
// [locks.ErrBusy] and a release as [locks.ErrGuarded]. It is for one goroutine at a time, as a transaction is; used by
// more, it does not harm the store.
//
// A transaction must be ended by Commit or Rollback; until then what it has changed or guarded is refused to others.
type Tx struct {
	store       *Store
	transaction *transaction
	level       *level
}

// Begin begins a transaction. The context is looked at once and does not bound the transaction.
func (s *Store) Begin(ctx context.Context) (*Tx, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := &transaction{levels: []*level{newLevel()}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*transaction]struct{})
	}
	s.open[t] = struct{}{}
	return &Tx{s, t, t.top()}, nil
}

// InTx implements [locks.Transactor].
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx locks.Tx) error) error {
	if fn == nil {
		return &locks.InvalidError{Field: "function", Reason: "must not be nil"}
	}
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // also on the way of a panic; after the commit it is refused
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// Acquire implements [locks.Tx].
func (tx *Tx) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	return step(ctx, tx, request.ValidateExclusive, func() (locks.Lock, error) {
		return tx.store.acquire(tx.transaction, request)
	})
}

// Renew implements [locks.Tx].
func (tx *Tx) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	valid := func() error {
		if err := grant.ValidateExact(); err != nil {
			return err
		}
		return locks.ValidateTTL(ttl)
	}
	return step(ctx, tx, valid, func() (locks.Lock, error) { return tx.store.renew(tx.transaction, grant, ttl) })
}

// Release implements [locks.Tx].
func (tx *Tx) Release(ctx context.Context, grant locks.Grant) error {
	_, err := step(ctx, tx, grant.ValidateExact, func() (struct{}, error) {
		return struct{}{}, tx.store.release(tx.transaction, grant)
	})
	return err
}

// Guard implements [locks.Tx].
func (tx *Tx) Guard(ctx context.Context, grant locks.Grant) error {
	_, err := step(ctx, tx, grant.ValidateExact, func() (struct{}, error) {
		return struct{}{}, tx.store.guard(tx.transaction, grant)
	})
	return err
}

// step does something in the transaction, once its arguments are valid.
func step[T any](ctx context.Context, tx *Tx, valid func() error, do func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := valid(); err != nil {
		return none, err
	}
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if err := tx.over(); err != nil {
		return none, err
	}
	return do()
}

// over refuses a transaction or savepoint that has ended.
func (tx *Tx) over() error {
	if tx.level.open() {
		return nil
	}
	return &locks.InvalidError{Field: "transaction", Reason: "must be open, it is over"}
}
