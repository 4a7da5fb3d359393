package main

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/rowlock"
)

// sell takes one piece out of stock: nobody else changes the row before the transaction ends.
func sell(ctx context.Context, tx bun.IDB, id int64, options ...rowlock.Option) error {
	item := product{ID: id}
	if err := rowlock.Lock(ctx, tx, &item, append(options, rowlock.ForNoKeyUpdate())...); err != nil {
		return err
	}
	if item.Stock == 0 { // read under the lock
		return errors.New("it is sold out")
	}
	item.Stock--
	_, err := tx.NewUpdate().Model(&item).Column("stock").WherePK().Exec(ctx)
	return err
}

func rowStory(ctx context.Context, a *app) error {
	err := a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := sell(ctx, tx, 1); err != nil {
			return err
		}
		a.say("the first customer takes the last chair, and pays")
		err := a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			return sell(ctx, tx, 1, rowlock.NoWait()) // by default it waits for up to 5 s
		})
		a.say("the second one does not want to wait: %s", answer(err))
		return nil
	})
	if err != nil {
		return err
	}
	err = a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return sell(ctx, tx, 1) })
	a.say("and comes back: %s", answer(err))
	return nil
}
