package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/optimistic"
)

// addFee changes what it has read, and starts again when somebody came between.
func addFee(ctx context.Context, db *bun.DB, id, fee int64) error {
	return optimistic.Retry(ctx, func(ctx context.Context) error {
		bill := invoice{ID: id}
		if err := db.NewSelect().Model(&bill).WherePK().Scan(ctx); err != nil {
			return err
		}
		bill.Amount += fee
		return optimistic.Update(ctx, db, &bill, optimistic.WithColumns("amount"))
	})
}

func optimisticStory(ctx context.Context, a *app) error {
	hers, his := invoice{ID: 4}, invoice{ID: 4} // two people have the invoice on their screens, nothing is locked
	for _, read := range []*invoice{&hers, &his} {
		if err := a.db.NewSelect().Model(read).WherePK().Scan(ctx); err != nil {
			return err
		}
	}
	hers.Amount, his.Amount = 55, 45
	a.say("she makes it 55: %s", answer(optimistic.Update(ctx, a.db, &hers)))
	a.say("he makes it 45: %s", answer(optimistic.Update(ctx, a.db, &his)))
	a.say("a program adds a fee of 5: %s", answer(addFee(ctx, a.db, 4, 5)))
	err := a.db.NewSelect().Model(&his).WherePK().Scan(ctx)
	a.say("the invoice is over %d", his.Amount)
	return err
}
