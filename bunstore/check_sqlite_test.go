package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/locks"
)

func TestCheckSQLite(t *testing.T) {
	db := newSQLiteDB(t)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	report, err := check(t.Context(), db, table{name: DefaultTable})
	if err != nil {
		t.Fatal(err)
	}
	if report.Dialect != "SQLite" || !strings.HasPrefix(report.Version, "3.") || report.Encoding != "UTF-8" || report.Durability != "wal, full" {
		t.Errorf("report %+v", report)
	}
	if report.ClockSkew.Abs() > time.Second || report.RoundTrip <= 0 || report.TransactionPooler {
		t.Errorf("report %+v", report)
	}
	if len(report.Warnings)+len(report.NotChecked) > 0 {
		t.Errorf("warnings %q, not checked %q", report.Warnings, report.NotChecked)
	}
}

// expectProblems wants exactly one problem, or warning, for each text.
func expectProblems(t *testing.T, err error, want ...string) {
	t.Helper()
	var problems []string
	var found *CheckError
	if errors.As(err, &found) {
		problems = found.Problems
	} else if err != nil {
		t.Errorf("a fault and no finding: %v", err)
	}
	expectTexts(t, "problem", problems, want...)
}

func expectTexts(t *testing.T, kind string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d %ss %q, want %d", len(got), kind, got, len(want))
	}
	for _, text := range want {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, text) }) {
			t.Errorf("no %s says %q: %q", kind, text, got)
		}
	}
}

func TestCheckSQLiteSchema(t *testing.T) {
	const columns = `id INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, token INTEGER NOT NULL UNIQUE,
		attempt TEXT NOT NULL, acquired_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, metadata TEXT`
	replaced := func(old, replacement string) []string {
		if !strings.Contains(columns, old) {
			t.Fatalf("no %q", old)
		}
		return []string{
			`DROP TABLE distributed_locks`, `CREATE TABLE distributed_locks (` + strings.Replace(columns, old, replacement, 1) + `)`,
			`CREATE TRIGGER distributed_locks_token_inserted AFTER INSERT ON distributed_locks BEGIN SELECT 1; END`,
			`CREATE TRIGGER distributed_locks_token_updated AFTER UPDATE ON distributed_locks BEGIN SELECT 1; END`,
		}
	}
	for _, test := range []struct {
		name   string
		broken []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"a table by hand", replaced("UNIQUE", "UNIQUE"), nil},
		{"an extra column", replaced("metadata TEXT", "metadata TEXT, note TEXT, since INTEGER NOT NULL DEFAULT 0"), nil},
		{"no table", []string{`DROP TABLE distributed_locks`}, []string{"the table is missing: run bunstore.Migrate"}},
		{"a view", []string{`DROP TABLE distributed_locks`, `CREATE VIEW distributed_locks AS SELECT 1`}, []string{"the table is missing"}},
		{"no column", replaced("attempt TEXT NOT NULL, ", ""), []string{"column attempt (TEXT) is missing"}},
		{"no token column", replaced("token INTEGER NOT NULL UNIQUE,", ""), []string{"column token (INTEGER) is missing", "column token has no unique index"}},
		{"another type", replaced("expires_at INTEGER", "expires_at TIMESTAMP"), []string{"column expires_at is of type TIMESTAMP"}},
		{"nullable", replaced("owner TEXT NOT NULL", "owner TEXT"), []string{"column owner: NOT NULL must be set"}},
		{"metadata not null", replaced("metadata TEXT", "metadata TEXT NOT NULL"), []string{"column metadata: NOT NULL must be dropped"}},
		{"no autoincrement", replaced("AUTOINCREMENT", ""), []string{"AUTOINCREMENT"}},
		{"a column that must be given", replaced("metadata TEXT", "metadata TEXT, tenant TEXT NOT NULL"), []string{"column tenant is not the library's"}},
		{"resource not unique", replaced("resource TEXT NOT NULL UNIQUE", "resource TEXT NOT NULL"), []string{"column resource has no unique index"}},
		{"token not unique", replaced("token INTEGER NOT NULL UNIQUE", "token INTEGER NOT NULL"), []string{"column token has no unique index"}},
		{"partial index", append(replaced("resource TEXT NOT NULL UNIQUE", "resource TEXT NOT NULL"),
			`CREATE UNIQUE INDEX i ON distributed_locks (resource) WHERE token > 0`), []string{"column resource has no unique index"}},
		{"index on two", append(replaced("resource TEXT NOT NULL UNIQUE", "resource TEXT NOT NULL"),
			`CREATE UNIQUE INDEX i ON distributed_locks (resource, owner)`), []string{"column resource has no unique index"}},
		{"expression index", append(replaced("resource TEXT NOT NULL UNIQUE", "resource TEXT NOT NULL"),
			`CREATE UNIQUE INDEX i ON distributed_locks (lower(resource))`), []string{"column resource has no unique index"}},
		{"index apart", append(replaced("resource TEXT NOT NULL UNIQUE", "resource TEXT NOT NULL"),
			`CREATE UNIQUE INDEX i ON distributed_locks (resource)`), nil},
		{"collation", replaced("resource TEXT NOT NULL", "resource TEXT COLLATE NOCASE NOT NULL"), []string{"COLLATE NOCASE", "column resource has no unique index"}},
		{"no trigger", []string{`DROP TRIGGER distributed_locks_token_updated`}, []string{`the trigger "distributed_locks_token_updated" is missing`}},
		{"no counter", []string{`DROP TABLE distributed_locks_tokens`}, []string{`the table "distributed_locks_tokens" is missing`}},
		{
			"no counter row",
			[]string{`DROP TRIGGER distributed_locks_tokens_deleted`, `DELETE FROM distributed_locks_tokens`},
			[]string{`distributed_locks_tokens_deleted" is missing`, "has lost its row"},
		},
		{"counter behind", []string{
			`INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at) VALUES ('a', 'w', 9, 'x', 0, 0)`,
			`UPDATE distributed_locks_tokens SET last = 8`,
		}, []string{"is at 8, but a lease has the token 9"}},
		{"counter at its end", []string{`UPDATE distributed_locks_tokens SET last = 9007199254740991`}, []string{"is at the largest token"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := newSQLiteDB(t)
			if err := Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, test.broken...)
			_, err := check(t.Context(), db, table{name: DefaultTable})
			expectProblems(t, err, test.want...)
			if err != nil && !strings.Contains(err.Error(), "bunstore: table distributed_locks cannot hold leases here: ") {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

func TestCheckSQLiteDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "good.db")
	if err := Migrate(t.Context(), sqliteFileDB(t, file)); err != nil {
		t.Fatal(err)
	}
	open := func(dsn string) *bun.DB {
		t.Helper()
		pool, err := sql.Open("sqlite", dsn)
		if err != nil {
			t.Fatal(err)
		}
		db := bun.NewDB(pool, sqlitedialect.New())
		t.Cleanup(func() { db.Close() })
		return db
	}
	t.Run("query_only", func(t *testing.T) {
		_, err := check(t.Context(), open("file:"+file+"?_pragma=query_only(1)"), table{name: DefaultTable})
		expectProblems(t, err, "query_only")
	})
	t.Run("mode=ro", func(t *testing.T) {
		_, err := check(t.Context(), open("file:"+file+"?mode=ro"), table{name: DefaultTable})
		expectProblems(t, err, "the database cannot be written")
	})
	t.Run("UTF-16", func(t *testing.T) {
		db := open("file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=encoding('UTF-16le')")
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		_, err := check(t.Context(), db, table{name: DefaultTable})
		expectProblems(t, err, "UTF-16le")
	})
	t.Run("settings that lose data", func(t *testing.T) {
		db := open("file:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=journal_mode(OFF)&_pragma=synchronous(0)")
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		report, err := check(t.Context(), db, table{name: DefaultTable})
		expectProblems(t, err)
		expectTexts(t, "warning", report.Warnings, "journal_mode is off", "synchronous is off")
	})
	t.Run("in memory, each connection its own", func(t *testing.T) {
		db := open(":memory:")
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		_, err := check(t.Context(), db, table{name: DefaultTable})
		expectProblems(t, err, "each connection has its own")
	})
	t.Run("in memory, one connection", func(t *testing.T) {
		db := open(":memory:")
		db.SetMaxOpenConns(1)
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		_, err := check(t.Context(), db, table{name: DefaultTable})
		expectProblems(t, err)
	})
	t.Run("in memory, shared", func(t *testing.T) {
		db := open("file:shared?mode=memory&cache=shared")
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		_, err := check(t.Context(), db, table{name: DefaultTable})
		expectProblems(t, err)
	})
	t.Run("somebody writes", func(t *testing.T) {
		writer, err := open("file:" + file).DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		if _, err := writer.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		defer writer.ExecContext(t.Context(), "ROLLBACK")
		report, err := check(t.Context(), open("file:"+file), table{name: DefaultTable})
		expectProblems(t, err)
		expectTexts(t, "gap", report.NotChecked, "somebody else is writing")
	})
}

func TestCheckEndsWithItsContext(t *testing.T) {
	db := newSQLiteDB(t)
	db.SetMaxOpenConns(1)
	taken, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := check(ctx, db, table{name: DefaultTable}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with the one connection taken: %v, want the deadline", err)
	}
	if _, err := check(t.Context(), nil, table{name: DefaultTable}); !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("no db: %v, want ErrInvalid", err)
	}
	closed := newSQLiteDB(t)
	closed.Close()
	var found *CheckError
	if _, err := check(t.Context(), closed, table{name: DefaultTable}); err == nil || errors.As(err, &found) {
		t.Errorf("a closed database: %v, want the fault and no finding", err)
	}
}

// A driver that does not heed its context is left behind.
func TestAbandonable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	block := make(chan struct{})
	defer close(block)
	started := time.Now()
	time.AfterFunc(20*time.Millisecond, cancel)
	err := abandonable(ctx, time.Minute, func(context.Context) error { <-block; return nil })
	if !errors.Is(err, context.Canceled) || time.Since(started) > 5*time.Second {
		t.Errorf("%v after %v, want Canceled within the grace", err, time.Since(started))
	}
	if err := abandonable(t.Context(), time.Nanosecond, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a deadline: %v, want the limit's", err)
	}
	if err := abandonable(t.Context(), time.Minute, func(context.Context) error { runtime.Goexit(); return nil }); err == nil {
		t.Error("work that ended its goroutine counts as done")
	}
	defer func() {
		if got := recover(); got != "a hook's" {
			t.Errorf("the caller recovers %v", got)
		}
	}()
	_ = abandonable(t.Context(), time.Minute, func(context.Context) error { panic("a hook's") })
}
