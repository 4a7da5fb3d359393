package optimistic_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/locks"
)

// open returns a new database with the tables of the models.
func open(tb testing.TB, models ...any) *bun.DB {
	tb.Helper()
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(tb.TempDir(), "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)")
	if err != nil {
		tb.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	tb.Cleanup(func() { db.Close() })
	for _, model := range models {
		if _, err := db.NewCreateTable().Model(model).Exec(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
	return db
}

func insert(tb testing.TB, db *bun.DB, model any) {
	tb.Helper()
	if _, err := db.NewInsert().Model(model).Exec(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// stored reads the row with the model's key.
func stored[T any](tb testing.TB, db bun.IDB, key T) T {
	tb.Helper()
	if err := db.NewSelect().Model(&key).WherePK().Scan(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return key
}

func execSQL(tb testing.TB, db bun.IDB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func isInvalid(tb testing.TB, name string, err error, field string) {
	tb.Helper()
	var invalid *locks.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		tb.Errorf("%s: err = %v, want an InvalidError for the %s", name, err, field)
	}
}
