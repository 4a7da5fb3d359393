package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// payInvoice pays it out of the account: lease, payment and release are one transaction, all of it or nothing.
func payInvoice(ctx context.Context, locker *locks.Locker, store *bunstore.Store, id, from int64) error {
	resource := fmt.Sprintf("invoice:%d", id)
	return locker.TryDoTx(ctx, store, resource, func(ctx context.Context, leased locks.Tx, _ *locks.Lease) error {
		tx := bunstore.TxFrom(leased) // a bun.IDB
		bill := invoice{ID: id}
		if err := tx.NewSelect().Model(&bill).WherePK().Scan(ctx); err != nil {
			return err
		}
		if bill.State == "paid" { // the lease keeps two from paying at once; this keeps one from paying again
			return errors.New("it is paid already")
		}
		bill.State = "paid"
		if _, err := tx.NewUpdate().Model(&bill).Column("state").WherePK().Exec(ctx); err != nil {
			return err
		}
		paid, err := tx.NewUpdate().Model((*account)(nil)).Set("balance = balance - ?", bill.Amount).
			Where("id = ? AND balance >= ?", from, bill.Amount).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := paid.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errors.New("there is not enough on the account"), err) // all of it is rolled back
		}
		return nil
	})
}

func acquireTxStory(ctx context.Context, a *app) error {
	a.say("invoice 3 is paid out of an account that is too low: %s", answer(payInvoice(ctx, a.locker, a.store, 3, 3)))
	_, err := a.locker.Get(ctx, "invoice:3")
	a.say("its transaction has left no lease: %t", errors.Is(err, locks.ErrNotFound))
	a.say("out of another one: %s", answer(payInvoice(ctx, a.locker, a.store, 3, 2)))
	a.say("and once more: %s", answer(payInvoice(ctx, a.locker, a.store, 3, 2)))
	sum, err := balance(ctx, a.db, 2)
	a.say("the account holds %d", sum)
	return err
}
