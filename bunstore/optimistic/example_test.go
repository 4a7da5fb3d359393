package optimistic_test

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

	"github.com/rowlease/rowlease/bunstore/optimistic"
)

type Invoice struct {
	ID      int64 `bun:",pk"`
	Amount  int64
	Version int64
}

// exampleDB has one invoice: number 4711 over 100.
func exampleDB(ctx context.Context) (db *bun.DB, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db"))
	if err != nil {
		log.Fatal(err)
	}
	db = bun.NewDB(sqldb, sqlitedialect.New())
	if _, err := db.NewCreateTable().Model((*Invoice)(nil)).Exec(ctx); err != nil {
		log.Fatal(err)
	}
	if _, err := db.NewInsert().Model(&Invoice{ID: 4711, Amount: 100}).Exec(ctx); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

// Two people have the same invoice on their screens.
func ExampleUpdate() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()

	hers, his := Invoice{ID: 4711}, Invoice{ID: 4711}
	for _, invoice := range []*Invoice{&hers, &his} {
		if err := db.NewSelect().Model(invoice).WherePK().Scan(ctx); err != nil {
			log.Fatal(err)
		}
	}
	hers.Amount, his.Amount = 120, 90
	fmt.Println("hers:", optimistic.Update(ctx, db, &hers))

	err := optimistic.Update(ctx, db, &his)
	var conflict *optimistic.ConflictError
	if errors.As(err, &conflict) {
		fmt.Printf("his: read version %d, found %d\n", conflict.Read, conflict.Current)
	}
	// Output:
	// hers: <nil>
	// his: read version 0, found 1
}

func ExampleDelete() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()

	fmt.Println(optimistic.Delete(ctx, db, &Invoice{ID: 4711, Version: 0}))
	err := optimistic.Delete(ctx, db, &Invoice{ID: 4711, Version: 0})
	fmt.Println("again:", errors.Is(err, optimistic.ErrNotFound))
	// Output:
	// <nil>
	// again: true
}

// A change that is computed from what was read, by programs: read and write again until nobody came between.
func ExampleRetry() {
	ctx := context.Background()
	db, remove := exampleDB(ctx)
	defer remove()

	tries := 0
	err := optimistic.Retry(ctx, func(ctx context.Context) error {
		tries++
		invoice := Invoice{ID: 4711}
		if err := db.NewSelect().Model(&invoice).WherePK().Scan(ctx); err != nil {
			return err
		}
		if tries == 1 { // somebody comes between
			other := invoice
			other.Amount += 1000
			if err := optimistic.Update(ctx, db, &other); err != nil {
				return err
			}
		}
		invoice.Amount += 20
		return optimistic.Update(ctx, db, &invoice)
	})
	fmt.Println(tries, "tries:", err)

	invoice := Invoice{ID: 4711}
	if err := db.NewSelect().Model(&invoice).WherePK().Scan(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("amount:", invoice.Amount)
	// Output:
	// 2 tries: <nil>
	// amount: 1120
}
