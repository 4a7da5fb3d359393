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

// account is what the workers pay into.
type account struct {
	bun.BaseModel `bun:"table:guard_accounts"`

	ID      int64 `bun:",pk,autoincrement"`
	Balance int64 `bun:",notnull"`
}

// entry is one payment, written in the transaction that wrote the new balance: the balance must be their sum.
type entry struct {
	bun.BaseModel `bun:"table:guard_entries"`

	ID        int64  `bun:",pk,autoincrement"`
	AccountID int64  `bun:",notnull"`
	Worker    string `bun:",notnull"`
	Amount    int64  `bun:",notnull"`
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

// newAccount makes the tables where they are missing, and an account that holds the amount.
func newAccount(ctx context.Context, db *bun.DB, amount int64) (int64, error) {
	for _, model := range []any{(*account)(nil), (*entry)(nil)} {
		if _, err := db.NewCreateTable().Model(model).IfNotExists().Exec(ctx); err != nil {
			return 0, err
		}
	}
	made := account{Balance: amount}
	if _, err := db.NewInsert().Model(&made).Exec(ctx); err != nil {
		return 0, err
	}
	_, err := db.NewInsert().Model(&entry{AccountID: made.ID, Worker: "bank", Amount: amount}).Exec(ctx)
	return made.ID, err
}

// books returns the account's balance and the sum of its entries: what the balance should be.
func books(ctx context.Context, db *bun.DB, id int64) (balance, entries int64, err error) {
	if err := db.NewSelect().Model((*account)(nil)).Column("balance").Where("id = ?", id).Scan(ctx, &balance); err != nil {
		return 0, 0, err
	}
	err = db.NewSelect().Model((*entry)(nil)).ColumnExpr("CAST(sum(amount) AS bigint)").Where("account_id = ?", id).Scan(ctx, &entries)
	return balance, entries, err
}
