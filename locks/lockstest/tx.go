package lockstest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func txPromises() []promise {
	return []promise{
		{name: "a transaction that is over changes nothing", test: txOver},
		{name: "a call whose context has ended changes nothing", test: txContextEnded},
		{name: "arguments out of rule are refused, and the transaction is usable", test: txInvalid},
		{name: "who asks is told how the transaction ended", test: txOnEnd},
		{name: "a savepoint's rollback is told to who asked in it, and its release with the transaction's end", test: txOnEndSavepoint},
	}
}

// txCall is one of the calls in a transaction that change or guard a lease of worker-1.
type txCall struct {
	name string
	do   func(ctx context.Context, tx locks.Tx, args arguments) error
}

func txCalls() []txCall {
	return []txCall{
		{"Acquire", func(ctx context.Context, tx locks.Tx, args arguments) error {
			_, err := tx.Acquire(ctx, args.request())
			return err
		}},
		{"Renew", func(ctx context.Context, tx locks.Tx, args arguments) error {
			_, err := tx.Renew(ctx, args.grant(), argument(args, "ttl", 2*ttl))
			return err
		}},
		{"Guard", func(ctx context.Context, tx locks.Tx, args arguments) error { return tx.Guard(ctx, args.grant()) }},
		{"Release", func(ctx context.Context, tx locks.Tx, args arguments) error { return tx.Release(ctx, args.grant()) }},
	}
}

func txOver(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	for _, end := range []func(Transaction){c.commit, c.rollback} {
		tx := c.begin(c.a)
		end(tx)
		for _, call := range txCalls() {
			for _, name := range []string{resource, "free"} {
				err := call.do(c.Context(), tx, arguments{"resource": name, "token": lock.Token})
				c.wantInvalid(err, "transaction", "%s in a transaction that is over", call.name)
			}
		}
	}
	c.wantStored(lock)
	c.wantFree("free")
	c.wantRows(1)
	c.acquire(c.b, resource, "worker-1")
}

func txContextEnded(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	cancelled, cancel := context.WithCancel(c.Context())
	cancel()
	expired, cancelExpired := context.WithDeadline(c.Context(), time.Now().Add(-time.Second))
	defer cancelExpired()
	tx := c.begin(c.a)
	for _, call := range txCalls() {
		if err := call.do(cancelled, tx, arguments{"token": lock.Token}); !errors.Is(err, context.Canceled) {
			c.Errorf("%s: %v, want context.Canceled", call.name, err)
		}
		if err := call.do(expired, tx, arguments{"token": lock.Token}); !errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("%s: %v, want context.DeadlineExceeded", call.name, err)
		}
	}
	c.wantUsable(tx)
	other := c.acquireTx(tx, "invoice:2026-0043", "worker-1")
	c.commit(tx)
	c.wantStored(lock)
	c.wantStored(other)
	c.wantRows(2)
}

func txInvalid(c *check) {
	c.needsTransactions()
	lock := c.acquire(c.b, resource, "worker-1")
	bad := map[string][]any{
		"resource": {"", "a\x00", "a\xff"},
		"owner":    {"", "a\n"},
		"attempt":  {""},
		"ttl":      {time.Duration(0), locks.MinTTL - 1, locks.MaxTTL + 1},
		"metadata": {json.RawMessage("[]")},
		"token":    {int64(0), locks.AnyToken, int64(1 << 53)},
	}
	takes := map[string][]string{
		"Acquire": {"resource", "owner", "attempt", "ttl", "metadata"}, "Renew": {"resource", "owner", "token", "ttl"},
		"Guard": {"resource", "owner", "token"}, "Release": {"resource", "owner", "token"},
	}
	tx := c.begin(c.a)
	for _, call := range txCalls() {
		for _, field := range takes[call.name] {
			for _, value := range bad[field] {
				args := arguments{"token": lock.Token}
				args[field] = value
				c.wantInvalid(call.do(c.Context(), tx, args), field, "%s in a transaction with %s %q", call.name, field, value)
				c.wantUsable(tx)
			}
		}
	}
	other := c.acquireTx(tx, "invoice:2026-0043", "worker-1")
	c.commit(tx)
	c.wantStored(lock)
	c.wantStored(other)
	c.wantRows(2)
}

func txOnEnd(c *check) {
	c.needsTransactions()
	for _, end := range []struct {
		outcome locks.Outcome
		end     func(Transaction)
	}{{locks.Committed, c.commit}, {locks.RolledBack, c.rollback}} {
		tx := c.begin(c.a)
		var ended outcomes
		tx.OnEnd(ended.note("first"))
		c.acquireTx(tx, resource, "worker-1")
		tx.OnEnd(func(outcome locks.Outcome) {
			ended.note("second")(outcome)
			if end.outcome == locks.Committed { // what it is told is so
				c.get(c.b, resource)
			}
		})
		tx.OnEnd(func(outcome locks.Outcome) {
			ended.note("third")(outcome)
			tx.OnEnd(ended.note("asked by the third"))
		})
		ended.want(c, 0)
		end.end(tx)
		ended.want(c, end.outcome, "first", "second", "third", "asked by the third")
		tx.OnEnd(ended.note("after the end"))
		ended.want(c, end.outcome, "first", "second", "third", "asked by the third", "after the end")
	}
}

func txOnEndSavepoint(c *check) {
	c.needsTransactions()
	for _, end := range []struct {
		outcome locks.Outcome
		end     func(Transaction)
	}{{locks.Committed, c.commit}, {locks.RolledBack, c.rollback}} {
		tx := c.begin(c.a)
		var outer, released, undone outcomes
		tx.OnEnd(outer.note("outer"))
		savepoint := c.savepoint(tx)
		c.acquireTx(savepoint, "undone", "worker-1")
		savepoint.OnEnd(undone.note("undone"))
		c.rollback(savepoint)
		undone.want(c, locks.RolledBack, "undone")
		savepoint = c.savepoint(tx)
		c.acquireTx(savepoint, "released", "worker-1")
		savepoint.OnEnd(released.note("released"))
		c.commit(savepoint)
		released.want(c, 0)
		outer.want(c, 0)
		tx.OnEnd(outer.note("outer again"))
		end.end(tx)
		outer.want(c, end.outcome, "outer", "outer again")
		released.want(c, end.outcome, "released")
		undone.want(c, locks.RolledBack, "undone")
	}
}
