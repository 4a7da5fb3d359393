package bench_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/mattn/go-sqlite3"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/driver/pgdriver"
	"github.com/uptrace/bun/schema"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// databases are what the figures are taken on. The PostgreSQL server writes to the disk as in production.
var databases = []struct {
	name string
	open func(b *testing.B) *bun.DB
}{
	{"postgres-pgx", func(b *testing.B) *bun.DB {
		b.Helper()
		sqldb, err := sql.Open("pgx", durable(b).Database(b))
		return migrated(b, sqldb, err, pgdialect.New())
	}},
	{"postgres-pgdriver", openPgdriver},
	{"sqlite-modernc", func(b *testing.B) *bun.DB {
		b.Helper()
		sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "leases.db")+
			"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(1000)")
		return migrated(b, sqldb, err, sqlitedialect.New())
	}},
	{"sqlite-mattn", func(b *testing.B) *bun.DB {
		b.Helper()
		sqldb, err := sql.Open("sqlite3", "file:"+filepath.Join(b.TempDir(), "leases.db")+
			"?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=1000")
		return migrated(b, sqldb, err, sqlitedialect.New())
	}},
}

func openPgdriver(b *testing.B) *bun.DB {
	b.Helper()
	return migrated(b, sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(durable(b).Database(b)))), nil, pgdialect.New())
}

func durable(b *testing.B) *postgres.Server {
	b.Helper()
	return postgres.Start(b, postgres.Durable())
}

func migrated(b *testing.B, sqldb *sql.DB, err error, d schema.Dialect) *bun.DB {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	sqldb.SetMaxOpenConns(16)
	sqldb.SetMaxIdleConns(16)
	db := bun.NewDB(sqldb, d)
	b.Cleanup(func() { db.Close() })
	if err := bunstore.Migrate(b.Context(), db); err != nil {
		b.Fatal(err)
	}
	return db
}

// recorded is a statement as the store sends it.
type recorded struct {
	sql  string
	args []any
}

type recorder struct{ statements []recorded }

func (r *recorder) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	r.statements = append(r.statements, recorded{event.Query, event.QueryArgs})
	return ctx
}

func (*recorder) AfterQuery(context.Context, *bun.QueryEvent) {}

// statements returns the very statements that the store sends for an acquire and a release: what a careful person would
// write by hand on database/sql. read is nil where an acquire is one statement.
func statements(b *testing.B, db *bun.DB) (read *recorded, acquire, release recorded) {
	b.Helper()
	r := new(recorder)
	store, err := bunstore.New(db, bunstore.WithQueryHook(r))
	if err != nil {
		b.Fatal(err)
	}
	lock, err := store.Acquire(b.Context(), locks.Request{Resource: "record", Owner: "o", Attempt: "a", TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	acquire = r.statements[len(r.statements)-1]
	if db.Dialect().Name() == dialect.SQLite {
		read = &r.statements[len(r.statements)-2]
	}
	if err := store.Release(b.Context(), lock.Grant()); err != nil {
		b.Fatal(err)
	}
	return read, acquire, r.statements[len(r.statements)-1]
}
