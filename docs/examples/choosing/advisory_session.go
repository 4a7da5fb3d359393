package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/advisory"
)

// importPrices runs in one process at a time, however long it takes: nothing is renewed, and when the process dies
// PostgreSQL frees the lock. It keeps one connection of the pool.
func importPrices(ctx context.Context, db *bun.DB, work func(context.Context) error) error {
	locker, err := advisory.New(db) // once, at start
	if err != nil {
		return err
	}
	session, err := locker.TryLock(ctx, "import prices")
	if err != nil {
		return err
	}
	if err := work(session.Context()); err != nil { // it ends when the connection is lost; it does not end with ctx
		_ = session.Unlock(ctx)
		return err
	}
	return session.Unlock(ctx) // locks.ErrLost: somebody else may have run, too
}

func advisorySessionStory(ctx context.Context, a *app) error {
	err := importPrices(ctx, a.db, func(ctx context.Context) error {
		a.say("one process imports the prices")
		a.say("meanwhile, another one: %s", answer(importPrices(ctx, a.db, nil)))
		return nil
	})
	if err != nil {
		return err
	}
	err = importPrices(ctx, a.db, func(context.Context) error { return nil })
	a.say("and later: %s", answer(err))
	return nil
}
