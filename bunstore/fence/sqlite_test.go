package fence_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/locks"
)

// open returns a new database with these tables.
func open(tb testing.TB, tables ...string) *bun.DB {
	tb.Helper()
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)")
	if err != nil {
		tb.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	tb.Cleanup(func() { db.Close() })
	for _, table := range tables {
		execSQL(tb, db, table)
	}
	return db
}

func execSQL(tb testing.TB, db bun.IDB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

// scan answers a query of one row and one column.
func scan[T any](tb testing.TB, db bun.IDB, query string) (v T) {
	tb.Helper()
	if err := db.NewRaw(query).Scan(tb.Context(), &v); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return v
}

func isInvalid(tb testing.TB, name string, err error, field string) {
	tb.Helper()
	var invalid *locks.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		tb.Errorf("%s: err = %v, want an InvalidError for the %s", name, err, field)
	}
}

func isStale(tb testing.TB, name string, err error, want fence.StaleError) {
	tb.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != want {
		tb.Errorf("%s: err = %v, want %v", name, err, &want)
	}
	if !errors.Is(err, fence.ErrStale) || !errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrRetryable) {
		tb.Errorf("%s: %v is not ErrStale and ErrLost alone", name, err)
	}
}
