package memstore

import (
	"context"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// Savepoint begins a savepoint: a Tx whose Commit leaves what was done to the transaction around it, and whose Rollback
// undoes it, guards included. Until one of them is called, what is done through the outer Tx belongs to the savepoint
// as well.
//
// Errors: [locks.ErrInvalid] for a transaction that is over; a context's end.
func (tx *Tx) Savepoint(ctx context.Context) (*Tx, error) {
	return step(ctx, tx, func() error { return nil }, func() (*Tx, error) {
		tx.transaction.levels = append(tx.transaction.levels, newLevel())
		return &Tx{tx.store, tx.transaction, tx.transaction.top()}, nil
	})
}

// Commit commits the transaction with all savepoints that are open in it, or releases the savepoint, and then tells the
// functions of [Tx.OnEnd] how the transaction ended. Under a context that has ended it does nothing.
//
// Errors: [locks.ErrInvalid] for a transaction that is over; a context's end.
func (tx *Tx) Commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tell, err := tx.commit()
	for _, fn := range tell {
		fn(locks.Committed)
	}
	return err
}

func (tx *Tx) commit() ([]func(locks.Outcome), error) {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if err := tx.over(); err != nil {
		return nil, err
	}
	t := tx.transaction
	if depth := tx.depth(); depth > 0 {
		t.release(depth)
		return nil, nil
	}
	for _, l := range t.levels { // the outermost first
		for _, w := range l.served { // also where the lease was released in the same transaction
			tx.store.waiting.remove(w)
		}
		for resource, r := range l.changes {
			tx.store.put(nil, resource, r)
		}
	}
	delete(tx.store.open, t)
	tx.store.wakeAfter(t.levels)
	return t.end(0, locks.Committed), nil
}

// Rollback undoes the transaction, or what was done since the savepoint began, and tells the functions of [Tx.OnEnd] of
// it. It does so under a context that has ended, too.
//
// Errors: [locks.ErrInvalid] for a transaction that is over.
func (tx *Tx) Rollback(context.Context) error {
	tell, err := tx.rollback()
	for _, fn := range tell {
		fn(locks.RolledBack)
	}
	return err
}

func (tx *Tx) rollback() ([]func(locks.Outcome), error) {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	if err := tx.over(); err != nil {
		return nil, err
	}
	depth := tx.depth()
	if depth == 0 {
		delete(tx.store.open, tx.transaction)
	}
	tx.store.wakeAfter(tx.transaction.levels[depth:])
	return tx.transaction.end(depth, locks.RolledBack), nil
}

// depth returns how many levels are around an open one.
func (tx *Tx) depth() int { return slices.Index(tx.transaction.levels, tx.level) }

// OnEnd implements [locks.Tx]. What is registered in a savepoint is told of its rollback at once, and otherwise of how
// the transaction ends.
func (tx *Tx) OnEnd(fn func(locks.Outcome)) {
	if outcome := tx.onEnd(fn); outcome != 0 {
		fn(outcome)
	}
}

func (tx *Tx) onEnd(fn func(locks.Outcome)) locks.Outcome {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	l := tx.level
	if l.open() {
		l = tx.transaction.top()
	}
	for l.into != nil {
		l = l.into
	}
	if l.outcome == 0 {
		l.onEnd = append(l.onEnd, fn)
	}
	return l.outcome
}
