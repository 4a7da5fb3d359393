package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// runWorker pays into the account: it takes the account's lease, reads the balance, and writes the new one. What it does
// it says on its standard output, a line for each step; before it writes it waits for a line on its standard input.
func runWorker(ctx context.Context, c config) error {
	db, err := openDatabase(c.databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := bunstore.New(db)
	if err != nil {
		return err
	}
	// Without renewal, because it would not help here: a process that is stopped renews nothing. And one that is stopped
	// in the middle of a renewal would keep the SQLite file from everybody.
	locker, err := locks.New(store, locks.WithTTL(c.ttl), locks.WithoutRenewal())
	if err != nil {
		return err
	}
	lease, err := locker.Acquire(ctx, fmt.Sprintf("guard-account:%d", c.account))
	if err != nil {
		return err
	}
	defer lease.Release(ctx) //nolint:errcheck // of a lease that is lost there is nothing to release
	fmt.Printf("acquired the account's lease under token %d\n", lease.Token())

	var balance int64
	if err := db.NewSelect().Model((*account)(nil)).Column("balance").Where("id = ?", c.account).Scan(ctx, &balance); err != nil {
		return err
	}
	// A look at the lease here is no help: the process can be stopped right after it.
	fmt.Printf("read the balance, %d\n", balance)
	if !bufio.NewScanner(os.Stdin).Scan() {
		return errors.New("nobody says to go on")
	}

	err = store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		if c.guard {
			// From here to the end of the transaction nobody else can be granted the lease.
			if err := lease.GuardTx(ctx, tx); err != nil {
				return err
			}
		}
		return pay(ctx, tx, c, balance+c.amount)
	})
	switch {
	case errors.Is(err, locks.ErrLost):
		fmt.Printf("refused: %v\n", err)
		return nil
	case err != nil:
		return err
	}
	fmt.Printf("wrote the balance, %d\n", balance+c.amount)
	return nil
}

// pay writes the new balance and the entry that explains it.
func pay(ctx context.Context, tx bun.IDB, c config, balance int64) error {
	if _, err := tx.NewUpdate().Model((*account)(nil)).Set("balance = ?", balance).Where("id = ?", c.account).Exec(ctx); err != nil {
		return err
	}
	_, err := tx.NewInsert().Model(&entry{AccountID: c.account, Worker: c.name, Amount: c.amount}).Exec(ctx)
	return err
}
