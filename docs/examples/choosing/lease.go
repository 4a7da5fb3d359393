package main

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks"
)

// sendInvoices sends what is open. One worker does it, the others are told that it is held; with Do they would wait. What
// was sent is marked at once, so that whoever comes after a crash goes on there.
func sendInvoices(ctx context.Context, locker *locks.Locker, db *bun.DB, send func(context.Context, invoice) error) error {
	return locker.TryDo(ctx, "send invoices", func(ctx context.Context, _ *locks.Lease) error {
		var open []invoice
		if err := db.NewSelect().Model(&open).Where("state = 'open'").Order("id").Scan(ctx); err != nil {
			return err
		}
		for _, next := range open {
			if err := send(ctx, next); err != nil { // ctx ends when the lease is lost
				return err
			}
			next.State = "sent"
			if _, err := db.NewUpdate().Model(&next).Column("state").WherePK().Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func leaseStory(ctx context.Context, a *app) error {
	err := sendInvoices(ctx, a.locker, a.db, func(ctx context.Context, next invoice) error {
		a.say("the worker sends invoice %d", next.ID)
		err := sendInvoices(ctx, a.locker, a.db, nil)
		a.say("meanwhile, another worker: %s", answer(err))
		return nil
	})
	if err != nil {
		return err
	}
	err = sendInvoices(ctx, a.locker, a.db, nil)
	a.say("the other one later, with nothing left to send: %s", answer(err))
	return nil
}
