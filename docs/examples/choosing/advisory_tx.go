package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/advisory"
)

// newInvoice gives out numbers without a gap, for which there is no row to lock: under the name's lock nobody else reads
// the last number before this one is committed.
func newInvoice(ctx context.Context, tx bun.IDB, amount int64) (number int64, err error) {
	if err := advisory.LockTx(ctx, tx, "invoice numbers"); err != nil { // up to 5 s; it ends with the transaction
		return 0, err
	}
	if err := tx.NewSelect().Model((*invoice)(nil)).ColumnExpr("coalesce(max(id), 0) + 1").Scan(ctx, &number); err != nil {
		return 0, err
	}
	_, err = tx.NewInsert().Model(&invoice{ID: number, Amount: amount, State: "draft"}).Exec(ctx)
	return number, err
}

func advisoryTxStory(ctx context.Context, a *app) error {
	return a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		number, err := newInvoice(ctx, tx, 70)
		if err != nil {
			return err
		}
		a.say("the new invoice gets number %d", number)
		err = a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			return advisory.TryLockTx(ctx, tx, "invoice numbers")
		})
		a.say("another transaction that does not want to wait: %s", answer(err))
		return nil
	})
}
