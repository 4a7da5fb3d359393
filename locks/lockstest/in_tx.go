package lockstest

import (
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func inTxPromises() []promise {
	return []promise{
		{name: "it commits when the function returns nil", test: inTxCommits},
		{name: "it rolls back when the function fails, and returns its error", test: inTxFails},
		{name: "it rolls back when the function panics", test: inTxPanics},
		{name: "a context that has ended begins nothing", test: inTxEnded},
		{name: "a context that ends in the function leaves what it says, and nothing held", test: inTxEnds},
	}
}

// transactor returns the store's ability to begin transactions, or skips the test.
func (c *check) transactor(store locks.Store) locks.Transactor {
	c.Helper()
	transactor, ok := store.(locks.Transactor)
	if !ok {
		c.Skipf("not tested: transactions of the store's own (%T is no locks.Transactor)", store)
	}
	return transactor
}

// outcomes notes what the functions given to OnEnd are told.
type outcomes struct {
	names []string
	told  []locks.Outcome
}

// note returns a function for OnEnd.
func (o *outcomes) note(name string) func(locks.Outcome) {
	return func(outcome locks.Outcome) {
		o.names, o.told = append(o.names, name), append(o.told, outcome)
	}
}

// want says who was told what so far, in order.
func (o *outcomes) want(c *check, outcome locks.Outcome, names ...string) {
	c.Helper()
	same := len(o.names) == len(names)
	for i := 0; same && i < len(names); i++ {
		same = o.names[i] == names[i] && o.told[i] == outcome
	}
	if !same {
		c.Errorf("told so far: %q %v, want %q: %v", o.names, o.told, names, outcome)
	}
}

func inTxCommits(c *check) {
	type key struct{}
	var ended outcomes
	var lock locks.Lock
	var kept locks.Tx
	ctx := context.WithValue(c.Context(), key{}, "value")
	err := c.transactor(c.a).InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
		if got := ctx.Value(key{}); got != "value" {
			c.Errorf("the function's context has %v for a value of the caller's context", got)
		}
		tx.OnEnd(ended.note("first"))
		lock = c.acquireTx(tx, resource, "worker-1")
		c.wantFree(resource)
		tx.OnEnd(ended.note("second"))
		ended.want(c, 0)
		kept = tx
		return nil
	})
	if err != nil {
		c.Fatalf("InTx: %v", err)
	}
	ended.want(c, locks.Committed, "first", "second")
	c.wantStored(lock)
	c.wantInvalid(kept.Guard(c.Context(), lock.Grant()), "transaction", "Guard after InTx")
}

func inTxFails(c *check) {
	transactor := c.transactor(c.a)
	var ended outcomes
	failed := errors.New("the invoice has no address")
	err := transactor.InTx(c.Context(), func(_ context.Context, tx locks.Tx) error {
		tx.OnEnd(ended.note("failed"))
		c.acquireTx(tx, resource, "worker-1")
		return failed
	})
	if !errors.Is(err, failed) {
		c.Errorf("InTx: %v, want the function's error: %v", err, failed)
	}
	ended.want(c, locks.RolledBack, "failed")
	c.wantFree(resource)
	c.wantRows(0)
	holder := c.acquire(c.b, resource, "worker-2")
	c.wantHeld(transactor.InTx(c.Context(), func(ctx context.Context, tx locks.Tx) error {
		_, err := tx.Acquire(ctx, c.request(resource, "worker-1"))
		return err
	}), holder)
	c.wantStored(holder)
}

func inTxPanics(c *check) {
	transactor := c.transactor(c.a)
	var ended outcomes
	panicked := func() (value any) {
		defer func() { value = recover() }()
		_ = transactor.InTx(c.Context(), func(_ context.Context, tx locks.Tx) error {
			tx.OnEnd(ended.note("panicked"))
			c.acquireTx(tx, resource, "worker-1")
			panic("no such invoice")
		})
		return nil
	}()
	if panicked != "no such invoice" {
		c.Errorf("InTx let the panic through as %v", panicked)
	}
	ended.want(c, locks.RolledBack, "panicked")
	c.wantFree(resource)
	c.wantRows(0)
	c.acquire(c.b, resource, "worker-2")
}

func inTxEnded(c *check) {
	transactor := c.transactor(c.a)
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	err := transactor.InTx(ctx, func(context.Context, locks.Tx) error {
		c.Error("the function ran")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		c.Errorf("InTx: %v, want context.Canceled", err)
	}
}

func inTxEnds(c *check) {
	transactor := c.transactor(c.a)
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	var ended outcomes
	var lock locks.Lock
	err := transactor.InTx(ctx, func(_ context.Context, tx locks.Tx) error {
		tx.OnEnd(ended.note("ended"))
		lock = c.acquireTx(tx, resource, "worker-1")
		cancel()
		return nil
	})
	if err == nil {
		ended.want(c, locks.Committed, "ended")
		c.wantStored(lock)
		return
	}
	if !errors.Is(err, context.Canceled) {
		c.Errorf("InTx: %v, want context.Canceled", err)
	}
	if len(ended.told) != 1 || ended.told[0] == locks.Committed {
		c.Errorf("InTx failed, and %v was told", ended.told)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) { // the database may still be busy with what was given up
		_, err := c.b.Acquire(c.Context(), c.request(resource, "worker-1"))
		if err == nil {
			return
		}
		if time.Since(began) > c.patience {
			c.Fatalf("after InTx failed its resource stays refused: %v", err)
		}
	}
}
