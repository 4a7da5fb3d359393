package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// sqliteFileDB opens a pool of its own on the file.
func sqliteFileDB(t *testing.T, file string) *bun.DB {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(pool, sqlitedialect.New())
	t.Cleanup(func() { db.Close() })
	return db
}

func newSQLiteDB(t *testing.T) *bun.DB {
	t.Helper()
	return sqliteFileDB(t, filepath.Join(t.TempDir(), "test.db"))
}

func mustExec(t *testing.T, db *bun.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func numberOf(t *testing.T, db *bun.DB, query string) (n int64) {
	t.Helper()
	if err := db.DB.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// grantSQLite writes a lease as an acquire does and returns its token.
func grantSQLite(t *testing.T, db *bun.DB, lease table, resource string) (token int64) {
	t.Helper()
	statement := fmt.Sprintf(`INSERT INTO %s AS l (resource, owner, token, attempt, acquired_at, expires_at)
VALUES (?, 'w', max(coalesce((SELECT last FROM %s), 0), coalesce((SELECT max(token) FROM %s), 0)) + 1, 'a', 0, 1)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token RETURNING token`, lease.quoted(), lease.tokensQuoted(), lease.quoted())
	if err := db.DB.QueryRowContext(t.Context(), statement, resource).Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

func TestMigrateSQLiteUpDownUp(t *testing.T) {
	ctx := t.Context()
	db := newSQLiteDB(t)
	lease := table{name: DefaultTable}
	var last int64
	grow := func(when string) {
		t.Helper()
		for _, resource := range []string{"a", "b", "a"} { // insert, insert, take over
			if token := grantSQLite(t, db, lease, resource); token <= last {
				t.Errorf("%s: token %d after %d", when, token, last)
			} else {
				last = token
			}
		}
	}
	for range 2 {
		if err := Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	grow("at first")
	mustExec(t, db, `DELETE FROM distributed_locks`)
	grow("leases deleted by hand")
	mustExec(t, db, `DELETE FROM distributed_locks_tokens`)
	grow("counter deleted by hand")
	mustExec(t, db, `DELETE FROM distributed_locks`, `DELETE FROM distributed_locks_tokens`)
	grow("both deleted by hand")
	for range 2 {
		if err := Rollback(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	if n := numberOf(t, db, `SELECT count(*) FROM sqlite_master WHERE name = 'distributed_locks'`); n != 0 {
		t.Error("the table is there after the rollback")
	}
	if err := Migrate(ctx, db); err != nil {
		t.Fatal(err)
	}
	grow("after down and up")
	mustExec(t, db, `DROP TABLE distributed_locks`)
	if err := Migrate(ctx, db); err != nil {
		t.Fatal(err)
	}
	grow("table dropped by hand")
}

func TestMigrateSQLiteReplicas(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	newSQLite := func() *bun.DB { return sqliteFileDB(t, file) } // no busy_timeout: whoever meets a writer is told at once
	mustExec(t, newSQLite(), `PRAGMA user_version = 1`)          // the file is there, and in WAL mode
	errs := make([]error, 10)
	var group sync.WaitGroup
	for i := range errs {
		db := newSQLite()
		group.Go(func() { errs[i] = Migrate(t.Context(), db) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := numberOf(t, newSQLite(), `SELECT count(*) FROM distributed_locks_migrations`); n != int64(len(steps)) {
		t.Errorf("%d records, want %d", n, len(steps))
	}
}

func TestMigrateSQLiteWaitsForTheWriterAndNoLonger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.db")
	db, other := sqliteFileDB(t, file), sqliteFileDB(t, file)
	writer, err := other.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Migrate(ctx, db); !errors.Is(err, context.DeadlineExceeded) || !dberror.IsSQLiteBusy(err) {
		t.Errorf("with a writer at work: %v, want the deadline and the reason", err)
	}
	done := make(chan error, 1)
	go func() { done <- Migrate(t.Context(), db) }()
	if _, err := writer.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("when the writer has finished: %v", err)
	}
}

func TestMigrateWithAPoolOfOne(t *testing.T) {
	db := newSQLiteDB(t)
	db.SetMaxOpenConns(1)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	taken, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, run := range map[string]func(context.Context, *bun.DB, ...MigrationOption) error{"Migrate": Migrate, "Rollback": Rollback} {
		if err := run(ctx, db); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with the one connection taken: %v, want the deadline", name, err)
		}
	}
}

func TestMigrateNamesThatNeedQuotes(t *testing.T) {
	ctx := t.Context()
	db := newSQLiteDB(t)
	for _, name := range []string{`My "Leases"`, "what?name", "a.b", `back\slash`, "größe", "select", strings.Repeat("x", maxTableBytes)} {
		option := WithTable(name)
		if err := errors.Join(Migrate(ctx, db, option, WithSchema("main")), Migrate(ctx, db, option, WithSchema("main"))); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lease := table{name: name}
		if first, second := grantSQLite(t, db, lease, "a"), grantSQLite(t, db, lease, "a"); first != 1 || second != 2 {
			t.Errorf("%s: tokens %d and %d, want 1 and 2", name, first, second)
		}
		if _, err := check(ctx, db, lease); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := Rollback(ctx, db, option, WithSchema("main")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failing step leaves nothing, and can be run again.
func TestMigrateSQLiteFailedUp(t *testing.T) {
	ctx := t.Context()
	db := newSQLiteDB(t)
	mustExec(t, db, `CREATE VIEW distributed_locks_tokens AS SELECT 1 AS id, 0 AS last`) // the second statement goes through, the third fails
	err := Migrate(ctx, db)
	if err == nil {
		t.Fatal("Migrate succeeded beside a view of the counter's name")
	}
	if !strings.Contains(err.Error(), "20261130000001_distributed_locks") {
		t.Errorf("the error does not name the migration: %v", err)
	}
	if n := numberOf(t, db, `SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'trigger') AND name LIKE 'distributed%'`); n != 0 {
		t.Errorf("%d things are left of the failed migration", n)
	}
	mustExec(t, db, `DROP VIEW distributed_locks_tokens`)
	if err := Migrate(ctx, db); err != nil {
		t.Errorf("again: %v", err)
	}
}
