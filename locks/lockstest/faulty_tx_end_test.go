package lockstest

import (
	"context"
	"errors"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

func (t *faultyTx) Works(context.Context) error {
	if t.root.aborted || t.root.over {
		return errors.New("current transaction is aborted, commands are ignored until end of transaction block")
	}
	return nil
}

func (t *faultyTx) OnEnd(fn func(locks.Outcome)) {
	t.s.mu.Lock()
	over := t.root.over
	committed := over && !t.root.aborted
	if !over {
		t.root.ends = append(t.root.ends, fn)
	}
	t.s.mu.Unlock()
	switch {
	case !over || t.s.has("who asks after the end is not told"):
	case committed:
		fn(locks.Committed)
	default:
		fn(locks.RolledBack)
	}
}

func (t *faultyTx) Savepoint(context.Context) (Transaction, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return &faultyTx{s: t.s, root: t.root, before: t.root.clone(), endsBefore: len(t.root.ends)}, nil
}

func (t *faultyTx) Commit(context.Context) error {
	t.s.enter()
	switch {
	case t.root != t:
		defer t.s.mu.Unlock()
		t.over = true
		switch {
		case t.s.has("a savepoint's release undoes it"):
			t.root.faultyState = t.before
		case t.s.has("a guard ends with its savepoint's release"):
			t.root.held = t.before.held
		}
		return nil
	case t.aborted:
		t.s.mu.Unlock()
		t.end(locks.RolledBack)
		return errors.New("the transaction was aborted, and is rolled back")
	}
	if !t.s.has("a commit is lost") {
		t.apply()
	}
	t.s.mu.Unlock()
	t.end(locks.Committed)
	return nil
}

func (t *faultyTx) Rollback(context.Context) error {
	t.s.enter()
	if t.root == t {
		if t.s.has("a rollback undoes nothing") {
			t.apply()
		}
		t.s.mu.Unlock()
		t.end(locks.RolledBack)
		return nil
	}
	t.over = true
	state, after := t.before, t.root.held
	switch {
	case t.s.has("a savepoint's rollback undoes nothing"):
		state = t.root.faultyState
	case t.s.has("a savepoint's rollback undoes everything"):
		state = faultyState{rows: map[string]*faultyRow{}}
	case t.s.has("locks outlive their savepoint"):
		state.held = after
	}
	t.root.faultyState = state
	told := t.root.ends[t.endsBefore:]
	if t.s.has("a savepoint's rollback is told to nobody") {
		told = nil
	}
	if t.s.has("a savepoint's rollback is told to all") {
		told = t.root.ends
	}
	told = slices.Clone(told)
	t.root.ends = t.root.ends[:t.endsBefore]
	t.s.mu.Unlock()
	for _, fn := range told {
		fn(locks.RolledBack)
	}
	return nil
}

// apply makes what the transaction changed everybody's.
func (t *faultyTx) apply() {
	for key, r := range t.rows {
		t.s.set(key, r)
	}
	for _, q := range t.served {
		t.s.takeOut(q)
	}
}

// end is the end of a transaction, and tells of it.
func (t *faultyTx) end(outcome locks.Outcome) {
	t.s.mu.Lock()
	t.over, t.aborted = true, outcome != locks.Committed
	told := t.ends
	if t.s.has("who asked last is told first") {
		slices.Reverse(told)
	}
	if t.s.has("nobody is told how it ended") {
		told = nil
	}
	if !t.s.has("a guard outlives its transaction") {
		t.s.txs = slices.DeleteFunc(t.s.txs, func(other *faultyTx) bool { return other == t })
	}
	for _, lock := range t.held {
		t.s.freed(lock.key, "a transaction that was "+outcome.String())
	}
	t.s.mu.Unlock()
	if t.s.has("a rollback is told as a commit") {
		outcome = locks.Committed
	}
	for _, fn := range told {
		fn(outcome)
	}
}

// InTx is locks.Transactor's.
func (s *faulty) InTx(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
	if err := s.begin(ctx, nil); err != nil {
		return err
	}
	t := s.open()
	returned := false
	defer func() {
		switch {
		case returned:
		case s.has("a function that panics is committed"):
			_ = t.Commit(ctx)
		default:
			_ = t.Rollback(ctx)
		}
		if s.has("a panic is swallowed") {
			_ = recover()
		}
	}()
	err := fn(ctx, t)
	returned = true
	if err != nil && !s.has("a function that fails is committed") {
		_ = t.Rollback(ctx)
		if s.has("a function's error is out of sight") {
			return errors.New(err.Error())
		}
		return err
	}
	if ctx.Err() != nil && !s.has("contexts are ignored") {
		_ = t.Rollback(ctx)
		if s.has("a commit that failed is told ok") {
			return nil
		}
		return ctx.Err()
	}
	return errors.Join(err, t.Commit(ctx))
}
