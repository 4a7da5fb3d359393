package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/locks"
)

type account struct {
	ID      int64 `bun:",pk"`
	Balance int64
}

type keyless struct{ Name string }

// named is a dialect under another name, so that what is checked before the database is asked can be told on SQLite.
type named struct {
	schema.Dialect
	name dialect.Name
}

func (d named) Name() dialect.Name { return d.name }

// begun is a transaction on a database of the test's own.
func begun(t *testing.T, d schema.Dialect) (*bun.DB, bun.Tx) {
	t.Helper()
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(sqldb, d)
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return db, tx
}

func all(q *bun.SelectQuery) *bun.SelectQuery { return q }

// calls are the package's, with good arguments but for the handle and the options.
func calls(ctx context.Context, tx bun.IDB, options ...rowlock.Option) map[string]error {
	return map[string]error{
		"Lock":      rowlock.Lock(ctx, tx, &account{ID: 1}, options...),
		"LockRows":  rowlock.LockRows(ctx, tx, &[]account{}, all, options...),
		"CheckPlan": rowlock.CheckPlan(ctx, tx, &[]account{}, all, options...),
	}
}

func isInvalid(t *testing.T, name string, err error, field, reason string) {
	t.Helper()
	var invalid *locks.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field || !strings.Contains(invalid.Reason, reason) {
		t.Errorf("%s: err = %v, want an InvalidError for the %s with %q", name, err, field, reason)
	}
}

func TestOnADialectWithoutRowLocks(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]schema.Dialect{
		"SQLite has no row locks. Begin the transaction with BEGIN IMMEDIATE": sqlitedialect.New(),
		"must be PostgreSQL, got mysql":                                       named{sqlitedialect.New(), dialect.MySQL},
	} {
		_, tx := begun(t, d)
		for name, err := range calls(t.Context(), tx) {
			isInvalid(t, name, err, "dialect", want)
		}
		if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("the transaction is not usable: %v", err)
		}
	}
}

func TestWithoutATransaction(t *testing.T) {
	t.Parallel()
	db, tx := begun(t, named{sqlitedialect.New(), dialect.PG})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	for what, handle := range map[string]bun.IDB{
		"nil": nil, "a zero Tx": bun.Tx{}, "a nil Tx": (*bun.Tx)(nil), "a zero Conn": bun.Conn{}, "a pool": db,
		"one that is over": tx, "a nil *bunstore.Tx": (*bunstore.Tx)(nil), "a zero *bunstore.Tx": new(bunstore.Tx),
	} {
		for name, err := range calls(t.Context(), handle) {
			isInvalid(t, name+" on "+what, err, "transaction", "")
		}
	}
}

func TestInvalidModels(t *testing.T) {
	t.Parallel()
	_, tx := begun(t, named{sqlitedialect.New(), dialect.PG})
	for name, model := range map[string]any{
		"nil": nil, "a struct": account{ID: 1}, "a nil pointer": (*account)(nil), "a slice": &[]account{{ID: 1}},
		"a number": new(int), "without a primary key": &keyless{}, "with its key unset": &account{Balance: 1},
	} {
		isInvalid(t, name, rowlock.Lock(t.Context(), tx, model), "model", "must")
		isInvalid(t, name, rowlock.CheckPlan(t.Context(), tx, model, nil), "model", "must")
	}
	for name, model := range map[string]any{
		"nil": nil, "a slice": []account{}, "a nil pointer": (*[]account)(nil), "a struct": &account{ID: 1},
		"numbers": &[]int{}, "without a primary key": &[]keyless{},
	} {
		isInvalid(t, name, rowlock.LockRows(t.Context(), tx, model, all), "model", "must")
		isInvalid(t, name, rowlock.CheckPlan(t.Context(), tx, model, all), "model", "must")
	}
	for name, condition := range map[string]rowlock.Condition{
		"nil":                      nil,
		"that returns nil":         func(*bun.SelectQuery) *bun.SelectQuery { return nil },
		"that returns another one": func(*bun.SelectQuery) *bun.SelectQuery { return tx.NewSelect().Model(&[]account{}) },
	} {
		isInvalid(t, "a condition "+name, rowlock.LockRows(t.Context(), tx, &[]account{}, condition), "condition", "must")
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	_, tx := begun(t, named{sqlitedialect.New(), dialect.PG})
	for _, test := range []struct {
		name, field string
		options     []rowlock.Option
	}{
		{"no limit", "limit", []rowlock.Option{rowlock.WithLimit(0)}},
		{"a negative limit", "limit", []rowlock.Option{rowlock.WithLimit(-time.Second)}},
		{"a limit without its unit", "limit", []rowlock.Option{rowlock.WithLimit(500)}},
		{"a limit beyond a day", "limit", []rowlock.Option{rowlock.WithLimit(25 * time.Hour)}},
		{"two strengths", "strength", []rowlock.Option{rowlock.ForShare(), rowlock.ForUpdate()}},
		{"two policies", "policy", []rowlock.Option{rowlock.NoWait(), rowlock.SkipLocked()}},
		{"nil", "option", []rowlock.Option{nil}},
	} {
		for name, err := range calls(t.Context(), tx, test.options...) {
			isInvalid(t, name+" with "+test.name, err, test.field, "must")
		}
	}
}

func TestHeldError(t *testing.T) {
	t.Parallel()
	cause := errors.New("canceling statement due to lock timeout")
	err := error(&rowlock.HeldError{Table: "accounts", Limit: 5 * time.Second, Err: cause})
	if !errors.Is(err, locks.ErrHeld) || !errors.Is(err, cause) || errors.Is(err, locks.ErrRetryable) {
		t.Errorf("%v is not ErrHeld with its cause", err)
	}
	const want = `rowlock: a row of "accounts" is locked by another transaction`
	if got := err.Error(); got != want+" for longer than 5s" {
		t.Errorf("got %s", got)
	}
	if got := (&rowlock.HeldError{Table: "accounts"}).Error(); got != want {
		t.Errorf("got %s", got)
	}
}
