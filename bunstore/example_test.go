package bunstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/migrate"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// exampleDB is a database of an example's own: in an application, the one that it already has.
func exampleDB() (db *bun.DB, remove func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)")
	if err != nil {
		log.Fatal(err)
	}
	db = bun.NewDB(sqldb, sqlitedialect.New())
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}

func ExampleNew() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()

	if err := bunstore.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	store, err := bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := locks.New(store, locks.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	err = locker.TryDo(ctx, "invoice:4711", func(context.Context, *locks.Lease) error {
		_, err := locker.TryAcquire(ctx, "invoice:4711")
		fmt.Println("meanwhile:", errors.Is(err, locks.ErrHeld))
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// meanwhile: true
	// done: <nil>
}

// A host that migrates with bun takes the table in with its own migrations.
func ExampleRegisterMigrations() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()

	migrations := migrate.NewMigrations()
	migrations.Add(migrate.Migration{
		Name: "20260101000001",
		Up: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().ExecContext(ctx, "CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
			return err
		},
	})
	if err := bunstore.RegisterMigrations(migrations); err != nil {
		log.Fatal(err)
	}
	migrator := migrate.NewMigrator(db, migrations, migrate.WithMarkAppliedOnSuccess(true))
	if err := migrator.Init(ctx); err != nil {
		log.Fatal(err)
	}
	group, err := migrator.Migrate(ctx)
	fmt.Println(len(group.Migrations), "migrations,", err)
	// Output:
	// 4 migrations, <nil>
}

func ExampleStore_Check() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()

	store, err := bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	_, err = store.Check(ctx)
	var unfit *bunstore.CheckError
	fmt.Println("before the migration:", errors.As(err, &unfit))

	if err := bunstore.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	_, err = store.Check(ctx)
	fmt.Println("after it:", err)
	// Output:
	// before the migration: true
	// after it: <nil>
}

// Operators' questions are queries on the model; changes go through the store.
func ExampleRow() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()
	if err := bunstore.Migrate(ctx, db); err != nil {
		log.Fatal(err)
	}
	store, err := bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	_, err = store.Acquire(ctx, locks.Request{Resource: "report:2026-05", Owner: "cron@host-7", Attempt: "1", TTL: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	var rows []bunstore.Row
	if err := db.NewSelect().Model(&rows).Where("owner LIKE ?", "cron@%").Scan(ctx); err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(row.Resource, "is held by", row.Owner)
	}
	// Output:
	// report:2026-05 is held by cron@host-7
}
