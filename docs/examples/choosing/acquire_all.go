package main

import (
	"context"
	"fmt"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// transfer holds both accounts or none. Two transfers that name them in different orders do not block each other.
func transfer(ctx context.Context, locker *locks.Locker, store *bunstore.Store, from, to, amount int64) error {
	leases, err := locker.TryAcquireAll(ctx, []string{fmt.Sprintf("account:%d", from), fmt.Sprintf("account:%d", to)})
	if err != nil {
		return err
	}
	defer leases.Release(ctx) //nolint:errcheck // a row that is left ends by its TTL
	return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		if err := leases.GuardTx(ctx, tx); err != nil {
			return err
		}
		update := tx.NewUpdate().Model((*account)(nil)).Where("id IN (?, ?)", from, to)
		_, err := update.Set("balance = balance + CASE id WHEN ? THEN ? ELSE ? END", to, amount, -amount).Exec(ctx)
		return err
	})
}

func acquireAllStory(ctx context.Context, a *app) error {
	a.say("40 from account 4 to account 3: %s", answer(transfer(ctx, a.locker, a.store, 4, 3, 40)))
	lease, err := a.locker.Acquire(ctx, "account:4")
	if err != nil {
		return err
	}
	defer lease.Release(ctx) //nolint:errcheck // the row is left to its TTL
	a.say("somebody holds account 4, and 10 are to go back: %s", answer(transfer(ctx, a.locker, a.store, 3, 4, 10)))
	err = a.locker.TryDo(ctx, "account:3", func(context.Context, *locks.Lease) error { return nil })
	a.say("account 3 was not held for that: %s", answer(err))
	three, err := balance(ctx, a.db, 3)
	if err != nil {
		return err
	}
	four, err := balance(ctx, a.db, 4)
	a.say("the accounts hold %d and %d", three, four)
	return err
}
