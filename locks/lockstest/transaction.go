package lockstest

import (
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Transaction is a caller's open transaction, as [Harness.Begin] opens it: what the store makes of it, and what only
// the caller does with it. Like a [locks.Tx] it is for one goroutine at a time.
type Transaction interface {
	locks.Tx

	// Commit commits the transaction and tells the store so: its OnEnd functions have run when Commit returns. Of a
	// savepoint it is the release, of which the store is told nothing.
	Commit(ctx context.Context) error

	// Rollback undoes the transaction and tells the store so, as Commit does. Of a savepoint it undoes what was done since,
	// and the store is told of that; the outer transaction goes on.
	Rollback(ctx context.Context) error

	// Savepoint begins a transaction within this one. Until it is committed or rolled back only it is used.
	Savepoint(ctx context.Context) (Transaction, error)

	// Works runs a plain statement, such as SELECT 1, in the transaction: it fails where the database has aborted it.
	Works(ctx context.Context) error
}

// needsTransactions skips the test where the harness opens none.
func (c *check) needsTransactions() {
	c.Helper()
	if c.h.Begin == nil {
		c.Skip("not tested: transactions (the harness has no Begin)")
	}
}

// needsManyWriters skips a test that writes beside an open transaction.
func (c *check) needsManyWriters() {
	c.Helper()
	c.needsTransactions()
	if c.h.OneWriter {
		c.Skip("not tested: two transactions that write at once (the engine has one writer)")
	}
}

// begin opens a transaction of the store, which the harness rolls back if the test leaves it open.
func (c *check) begin(store locks.Store) Transaction {
	c.Helper()
	c.needsTransactions()
	return c.h.Begin(c.TB, store)
}

// savepoint must begin.
func (c *check) savepoint(tx Transaction) Transaction {
	c.Helper()
	savepoint, err := tx.Savepoint(c.Context())
	if err != nil {
		c.Fatalf("Savepoint: %v", err)
	}
	return savepoint
}

// commit must succeed.
func (c *check) commit(tx Transaction) {
	c.Helper()
	if err := tx.Commit(c.Context()); err != nil {
		c.Fatalf("Commit: %v", err)
	}
}

// rollback must succeed.
func (c *check) rollback(tx Transaction) {
	c.Helper()
	if err := tx.Rollback(c.Context()); err != nil {
		c.Fatalf("Rollback: %v", err)
	}
}

// wantUsable says that the transaction goes on after what was refused in it.
func (c *check) wantUsable(tx Transaction) {
	c.Helper()
	if err := tx.Works(c.Context()); err != nil {
		c.Fatalf("the next statement in the transaction: %v", err)
	}
}

// grantTx is a request that must be granted in the transaction.
func (c *check) grantTx(tx locks.Tx, request locks.Request) locks.Lock {
	c.Helper()
	lock, err := tx.Acquire(c.Context(), request)
	if err != nil {
		c.Fatalf("Acquire(%.80q, owner %.80q, %q) in a transaction: %v", request.Resource, request.Owner, request.Attempt, err)
	}
	return lock
}

// acquireTx is a new attempt of the owner that must be granted in the transaction.
func (c *check) acquireTx(tx locks.Tx, resource, owner string) locks.Lock {
	c.Helper()
	return c.grantTx(tx, c.request(resource, owner))
}

// renewTx must succeed.
func (c *check) renewTx(tx locks.Tx, grant locks.Grant, ttl time.Duration) locks.Lock {
	c.Helper()
	lock, err := tx.Renew(c.Context(), grant, ttl)
	if err != nil {
		c.Fatalf("Renew(%+v, %v) in a transaction: %v", grant, ttl, err)
	}
	return lock
}

// releaseTx must succeed.
func (c *check) releaseTx(tx locks.Tx, grant locks.Grant) {
	c.Helper()
	if err := tx.Release(c.Context(), grant); err != nil {
		c.Fatalf("Release(%+v) in a transaction: %v", grant, err)
	}
}

// guard must pass.
func (c *check) guard(tx locks.Tx, grant locks.Grant) {
	c.Helper()
	if err := tx.Guard(c.Context(), grant); err != nil {
		c.Fatalf("Guard(%+v): %v", grant, err)
	}
}

// wantExcluded says that nobody is granted what an open transaction has of worker-1, its own new attempt included: a try
// is refused at once, its holder unknown or the committed one, nil where there is none. Where one writer keeps all others
// waiting, the first such try of a test tells as much as all.
func (c *check) wantExcluded(resource string, committed *locks.Lock) {
	c.Helper()
	others := []string{"worker-9", "worker-1"}
	if c.h.OneWriter {
		others = others[1:]
		if c.waited {
			return
		}
		c.waited = true
	}
	for _, other := range others {
		ctx, cancel := c.beside()
		lock, err := c.b.Acquire(ctx, c.request(resource, other))
		cancel()
		c.wantRefusedBeside(err, resource, committed)
		c.wantSame("the record beside the error", lock, locks.Lock{})
	}
}

// beside returns the context of a call beside an open transaction: a short one where one writer keeps it waiting.
func (c *check) beside() (context.Context, context.CancelFunc) {
	if c.h.OneWriter {
		return context.WithTimeout(c.Context(), 100*time.Millisecond)
	}
	return context.WithCancel(c.Context())
}

// wantRefusedBeside is wantExcluded's look at one answer.
func (c *check) wantRefusedBeside(err error, resource string, committed *locks.Lock) {
	c.Helper()
	if c.h.OneWriter {
		if !errors.Is(err, locks.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
			c.Errorf("a try beside the engine's one writer: err = %v, want ErrBusy", err)
		}
		return
	}
	var held *locks.HeldError
	switch {
	case !errors.Is(err, locks.ErrHeld) || !errors.As(err, &held):
		c.Errorf("a try beside the open transaction: err = %v, want a *HeldError", err)
	case held.Resource != resource:
		c.Errorf("HeldError.Resource = %.80q, want %.80q", held.Resource, resource)
	case held.Holder != nil && committed == nil:
		c.Errorf("HeldError.Holder = %+v, want nil: nobody sees an open transaction's grant", held.Holder)
	case held.Holder != nil:
		c.wantSame("HeldError.Holder", *held.Holder, *committed)
	}
}
