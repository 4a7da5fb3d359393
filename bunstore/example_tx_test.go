package bunstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// A worker writes the balance of an account in a transaction that only the holder of the account's lease can commit.
func ExampleStore_RunInTx() {
	ctx := context.Background()
	_, store, locker, remove := bank(ctx)
	defer remove()
	lease, err := locker.Acquire(ctx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)

	err = store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		if err := lease.GuardTx(ctx, tx); err != nil {
			return err // lost: nothing is written
		}
		_, err := tx.NewUpdate().Model(&exampleAccount{ID: 7}).Set("balance = balance + 100").WherePK().Exec(ctx)
		return err
	})
	fmt.Println("written by the holder:", err)
	// Output: written by the holder: <nil>
}

// The host begins and ends the transaction itself, and says how it ended.
func ExampleStore_Tx() {
	ctx := context.Background()
	db, store, locker, remove := bank(ctx)
	defer remove()

	bunTx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	tx, err := store.Tx(bunTx)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.TryAcquireTx(ctx, tx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	_, err = store.Get(ctx, "account:7")
	fmt.Println("seen by others before the commit:", !errors.Is(err, locks.ErrNotFound))

	err = bunTx.Commit()
	tx.End(bunstore.OutcomeOf(err))
	_, err = store.Get(ctx, "account:7")
	fmt.Println("and after it:", err == nil)
	fmt.Println("released:", lease.Release(ctx))
	// Output:
	// seen by others before the commit: false
	// and after it: true
	// released: <nil>
}

// One transaction acquires the invoice, books it and releases it: no row is ever seen, and a crash leaves none.
func ExampleTxFrom() {
	ctx := context.Background()
	_, store, locker, remove := bank(ctx)
	defer remove()
	err := locker.TryDoTx(ctx, store, "account:7", func(ctx context.Context, tx locks.Tx, _ *locks.Lease) error {
		_, err := bunstore.TxFrom(tx).NewUpdate().Model(&exampleAccount{ID: 7}).Set("balance = balance + 100").WherePK().Exec(ctx)
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}

// A savepoint that fails takes its leases with it; the transaction goes on.
func ExampleTx_Savepoint() {
	ctx := context.Background()
	_, store, locker, remove := bank(ctx)
	defer remove()
	var lease *locks.Lease
	err := store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		failed := tx.Savepoint(ctx, func(ctx context.Context, tx *bunstore.Tx) (err error) {
			if lease, err = locker.TryAcquireTx(ctx, tx, "account:7"); err != nil {
				return err
			}
			return errors.New("no such customer")
		})
		fmt.Println(failed)
		return nil
	})
	fmt.Println("rolled back with its savepoint:", errors.Is(lease.Err(), locks.ErrRolledBack), err)
	// Output:
	// no such customer
	// rolled back with its savepoint: true <nil>
}

type exampleAccount struct {
	bun.BaseModel `bun:"table:accounts"`

	ID      int64 `bun:"id,pk"`
	Balance int64 `bun:"balance"`
}

// bank is a database with one account.
func bank(ctx context.Context) (*bun.DB, *bunstore.Store, *locks.Locker, func()) {
	db, remove := exampleDB()
	account := &exampleAccount{ID: 7}
	if err := bunstore.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.NewCreateTable().Model(account).Exec(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.NewInsert().Model(account).Exec(ctx); err != nil {
		log.Fatal(err)
	}
	store, err := bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	return db, store, locker, remove
}
