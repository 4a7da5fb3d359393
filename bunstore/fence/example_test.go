package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Balance is a row in another database than the leases.
type Balance struct {
	Account string `bun:",pk"`
	Amount  int64
}

func exampleDB(ctx context.Context) (db *bun.DB, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bank.db"))
	if err != nil {
		log.Fatal(err)
	}
	db = bun.NewDB(sqldb, sqlitedialect.New())
	for _, statement := range []string{
		"CREATE TABLE balances (account TEXT PRIMARY KEY, amount INTEGER, fence_token INTEGER)",
		"INSERT INTO balances (account, amount) VALUES ('savings', 100)",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			log.Fatal(err)
		}
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

// The first holder is paused, its lease ends, another one takes over and writes; then the first one wakes up.
func ExampleUpdate() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	first, err := locker.TryAcquire(ctx, "account:savings")
	if err != nil {
		log.Fatal(err)
	}
	paused := first.Token()
	if err := first.Release(ctx); err != nil { // as if its time had run out
		log.Fatal(err)
	}
	second, err := locker.TryAcquire(ctx, "account:savings")
	if err != nil {
		log.Fatal(err)
	}
	defer second.Release(ctx)

	err = fence.Update(ctx, db, &Balance{Account: "savings", Amount: 150}, second.Token())
	fmt.Println("second holder:", err)
	err = fence.Update(ctx, db, &Balance{Account: "savings", Amount: 90}, paused)
	fmt.Println("first holder is refused:", errors.Is(err, fence.ErrStale))
	// Output:
	// second holder: <nil>
	// first holder is refused: true
}

// A new holder shuts out its predecessors before it reads what they have left.
func ExampleAdvance() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()

	const before, token = 6, 7 // of two leases
	if err := fence.Advance(ctx, db, &Balance{Account: "savings"}, token); err != nil {
		log.Fatal(err)
	}
	balance := Balance{Account: "savings"}
	if err := db.NewSelect().Model(&balance).WherePK().Scan(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("read:", balance.Amount)
	err := fence.Update(ctx, db, &balance, before, fence.WithSet("amount = amount - ?", 30))
	fmt.Println("a late write of the predecessor:", err)
	// Output:
	// read: 100
	// a late write of the predecessor: fence: token is stale: got 6, stored is 7 in balances
}

func ExampleUpsert() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()

	fmt.Println(fence.Upsert(ctx, db, &Balance{Account: "current", Amount: 10}, 7))
	fmt.Println(fence.Upsert(ctx, db, &Balance{Account: "current", Amount: 20}, 6))
	// Output:
	// <nil>
	// fence: token is stale: got 6, stored is 7 in balances
}

// Without bun, on any database.
func ExampleCondition() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()
	sqldb := db.DB // a *sql.DB

	update := "UPDATE balances SET amount = $1, fence_token = $2 WHERE account = $3 AND " + fence.Condition("fence_token", "$2")
	for _, token := range []int64{7, 6} {
		result, err := sqldb.ExecContext(ctx, update, 150, token, "savings")
		if err != nil {
			log.Fatal(err)
		}
		if n, err := result.RowsAffected(); err != nil {
			log.Fatal(err)
		} else if n == 1 {
			fmt.Println("written with token", token)
			continue
		}
		var stored int64
		err = sqldb.QueryRowContext(ctx, "SELECT coalesce(fence_token, 0) FROM balances WHERE account = $1", "savings").Scan(&stored)
		if err != nil {
			log.Fatal(err) // sql.ErrNoRows: no such row
		}
		fmt.Println(fence.Check(token, stored))
	}
	// Output:
	// written with token 7
	// fence: token is stale: got 6, stored is 7
}
