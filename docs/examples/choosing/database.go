package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite" // driver "sqlite", without cgo
)

type account struct {
	bun.BaseModel `bun:"table:choosing_accounts"`

	ID      int64 `bun:",pk"`
	Balance int64 `bun:",notnull"`
}

type invoice struct {
	bun.BaseModel `bun:"table:choosing_invoices"`

	ID      int64  `bun:",pk"`
	Amount  int64  `bun:",notnull"`
	State   string `bun:",notnull"` // draft, open, sent, paid or reminded
	Version int64  `bun:",notnull"` // for package optimistic
}

type product struct {
	bun.BaseModel `bun:"table:choosing_products"`

	ID    int64 `bun:",pk"`
	Stock int64 `bun:",notnull"`
}

type delivery struct {
	bun.BaseModel `bun:"table:choosing_deliveries"`

	ID    int64  `bun:",pk"`
	State string `bun:",notnull"` // ready or done
}

// openDatabase opens what the URL names: a PostgreSQL database or an SQLite file.
func openDatabase(url string) (*bun.DB, error) {
	switch {
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		pool, err := sql.Open("pgx", url)
		if err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		return bun.NewDB(pool, pgdialect.New()), nil
	case strings.HasPrefix(url, "file:"):
		separator := "?"
		if strings.Contains(url, "?") {
			separator = "&"
		}
		pool, err := sql.Open("sqlite", url+separator+"_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
		if err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		return bun.NewDB(pool, sqlitedialect.New()), nil
	}
	return nil, errors.New("DATABASE_URL must be postgres://… or file:NAME") // it is not shown: it may hold a password
}

func models() []any {
	return []any{(*account)(nil), (*invoice)(nil), (*product)(nil), (*delivery)(nil)}
}

// makeTables makes the tables of the stories anew, with what each of them finds there.
func makeTables(ctx context.Context, db *bun.DB) error {
	if err := dropTables(ctx, db); err != nil {
		return err
	}
	for _, model := range models() {
		if _, err := db.NewCreateTable().Model(model).Exec(ctx); err != nil {
			return err
		}
	}
	for _, rows := range []any{
		&[]account{{ID: 1}, {ID: 2, Balance: 100}, {ID: 3, Balance: 10}, {ID: 4, Balance: 100}},
		&[]invoice{
			{ID: 1, Amount: 20, State: "open"}, {ID: 2, Amount: 30, State: "open"}, // lease
			{ID: 3, Amount: 40, State: "sent"},  // acquire_tx
			{ID: 4, Amount: 50, State: "draft"}, // optimistic
			{ID: 5, Amount: 60, State: "sent"},  // local
		},
		&[]product{{ID: 1, Stock: 1}},
		&[]delivery{{ID: 1, State: "ready"}, {ID: 2, State: "ready"}},
	} {
		if _, err := db.NewInsert().Model(rows).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func dropTables(ctx context.Context, db *bun.DB) error {
	for _, model := range models() {
		if _, err := db.NewDropTable().Model(model).IfExists().Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// balance reads what an account holds.
func balance(ctx context.Context, db *bun.DB, id int64) (int64, error) {
	a := account{ID: id}
	err := db.NewSelect().Model(&a).WherePK().Scan(ctx)
	return a.Balance, err
}
