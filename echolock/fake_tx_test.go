package echolock_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

// database is a rig's store with transactions that a test can break and watch, and that have one table of words.
type database struct {
	locks.Transactor
	begin  error         // what the next begins return
	commit error         // what the commits return, which then
	ends   locks.Outcome // are told to have ended so; 0 is rolled back
	// committing is called when the handler has returned and the lease is released, before the commit.
	committing func()

	mu                         sync.Mutex
	begins, commits, rollbacks int
	words                      []string
}

// databaseTx is a transaction of the database.
type databaseTx struct {
	locks.Tx
	words []string
	tell  []func(locks.Outcome)
}

func (tx *databaseTx) insert(word string)             { tx.words = append(tx.words, word) }
func (tx *databaseTx) OnEnd(tell func(locks.Outcome)) { tx.tell = append(tx.tell, tell) }

// InTx implements locks.Transactor. As with database/sql a context that has ended rolls back.
func (d *database) InTx(ctx context.Context, fn func(ctx context.Context, tx locks.Tx) error) error {
	if d.begin != nil {
		return d.begin
	}
	d.mu.Lock()
	d.begins++
	d.mu.Unlock()
	tx, outcome := &databaseTx{}, locks.RolledBack
	defer func() {
		d.end(tx, outcome)
		for _, tell := range tx.tell {
			tell(outcome)
		}
	}()
	err := d.Transactor.InTx(ctx, func(ctx context.Context, inner locks.Tx) error {
		tx.Tx = inner
		if err := fn(ctx, tx); err != nil {
			return err
		}
		if d.committing != nil {
			d.committing()
		}
		return d.commit
	})
	switch {
	case err == nil:
		outcome = locks.Committed
	case d.ends != 0 && errors.Is(err, d.commit):
		outcome = d.ends
	}
	return err
}

func (d *database) end(tx *databaseTx, outcome locks.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if outcome == locks.Committed {
		d.commits++
		d.words = append(d.words, tx.words...)
	} else {
		d.rollbacks++
	}
}

// wantEnds checks how many transactions ended how.
func (d *database) wantEnds(t testing.TB, commits, rollbacks int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.begins != commits+rollbacks || d.commits != commits || d.rollbacks != rollbacks || len(d.words) > commits {
		t.Errorf("%d begins, %d commits of %q, %d rollbacks; want %d commits, %d rollbacks",
			d.begins, d.commits, d.words, d.rollbacks, commits, rollbacks)
	}
}

// newTxRig is a guardRig with transactions.
func newTxRig(t testing.TB, options ...locks.Option) (*guardRig, *database) {
	t.Helper()
	rig := newGuardRig(t, options...)
	return rig, &database{Transactor: rig.store}
}

// inTx is a change of a Config.
func inTx(d *database) func(config *echolock.Config) {
	return func(config *echolock.Config) { config.Tx = d }
}
