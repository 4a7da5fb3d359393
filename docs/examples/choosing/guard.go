package main

import (
	"context"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// deposit pays into the account, if the lease is still current in the transaction that does it.
func deposit(ctx context.Context, store *bunstore.Store, lease *locks.Lease, id, amount int64) error {
	return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		if err := lease.GuardTx(ctx, tx); err != nil { // before anything is read
			return err
		}
		_, err := tx.NewUpdate().Model((*account)(nil)).Set("balance = balance + ?", amount).Where("id = ?", id).Exec(ctx)
		return err
	})
}

func guardStory(ctx context.Context, a *app) error {
	first, err := a.locker.Acquire(ctx, "account:1")
	if err != nil {
		return err
	}
	defer first.Release(ctx) //nolint:errcheck // it is lost by then
	a.say("the first worker pays in 30: %s", answer(deposit(ctx, a.store, first, 1, 30)))

	// As if it had slept past the end of its lease: an operator ends it, and another worker takes over.
	if _, err := a.store.ForceRelease(ctx, first.Resource(), first.Token()); err != nil {
		return err
	}
	second, err := a.locker.Acquire(ctx, "account:1")
	if err != nil {
		return err
	}
	defer second.Release(ctx) //nolint:errcheck // the row is left to its TTL
	a.say("the second one takes over and pays in 50: %s", answer(deposit(ctx, a.store, second, 1, 50)))
	a.say("the first one pays in 20, too late: %s", answer(deposit(ctx, a.store, first, 1, 20)))
	sum, err := balance(ctx, a.db, 1)
	a.say("the account holds %d", sum)
	return err
}
