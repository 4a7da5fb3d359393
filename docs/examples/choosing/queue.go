package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/rowlock"
)

// deliverNext delivers the oldest order that no other worker is at. If it fails, or its process dies, the row is as before
// and the next worker's.
func deliverNext(ctx context.Context, db *bun.DB, deliver func(context.Context, int64) error) (found bool, err error) {
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		var next []delivery
		if err := rowlock.LockRows(ctx, tx, &next, oldestReady, rowlock.SkipLocked()); err != nil || len(next) == 0 {
			return err
		}
		found = true
		if err := deliver(ctx, next[0].ID); err != nil { // short: the transaction is open
			return err
		}
		next[0].State = "done"
		_, err := tx.NewUpdate().Model(&next[0]).Column("state").WherePK().Exec(ctx)
		return err
	})
	return found, err
}

// oldestReady needs an index on (id) WHERE state = 'ready'; rowlock.CheckPlan tells so in a test.
func oldestReady(q *bun.SelectQuery) *bun.SelectQuery {
	return q.Where("state = 'ready'").Order("id").Limit(1)
}

func queueStory(ctx context.Context, a *app) error {
	_, err := deliverNext(ctx, a.db, func(ctx context.Context, id int64) error {
		a.say("the first worker takes delivery %d", id)
		_, err := deliverNext(ctx, a.db, func(_ context.Context, id int64) error {
			a.say("meanwhile the second one takes delivery %d", id)
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	found, err := deliverNext(ctx, a.db, nil)
	if err != nil {
		return err
	}
	a.say("there is one more: %t", found)
	return nil
}
