package integration_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockstest"
)

// handles is what a driver calls the ways it can send a statement.
//
// The promises of transactions run on some of them: they depend on the driver and on the isolation, not on the mode.
var handles = map[string]struct {
	driver, parameters string
	transactions       bool
}{
	"pgdriver":              {"pgdriver", "", true},
	"pgx":                   {"pgx", "", true},
	"pgx cache_describe":    {"pgx", "default_query_exec_mode=cache_describe", false},
	"pgx describe_exec":     {"pgx", "default_query_exec_mode=describe_exec", false},
	"pgx exec":              {"pgx", "default_query_exec_mode=exec", false},
	"pgx simple_protocol":   {"pgx", "default_query_exec_mode=simple_protocol", false},
	"pgx serializable":      {"pgx", "default_transaction_isolation=serializable", true},
	"pgdriver serializable": {"pgdriver", "default_transaction_isolation=serializable", false},
}

func withParameters(dsn, parameters string) string {
	if parameters == "" {
		return dsn
	}
	if strings.Contains(dsn, "?") {
		return dsn + "&" + parameters
	}
	return dsn + "?" + parameters
}

var schemas atomic.Int64

// backDoors are what the suite does behind the store's back; each store has its own table in the database.
type backDoors struct {
	db    *bun.DB
	table string
}

func harness(open func(tb testing.TB, n int) []locks.Store, doors map[locks.Store]backDoors, expire, truncate string) lockstest.Harness {
	run := func(tb testing.TB, store locks.Store, statement string, args ...any) {
		tb.Helper()
		table := doors[store].table
		one := strings.TrimSuffix(table, "s")
		exec(tb, doors[store].db, strings.NewReplacer("{table}", table, "{waiters}", one+"_waiters", "{shares}", one+"_shares").Replace(statement), args...)
	}
	return lockstest.Harness{
		Open: open,
		Expire: func(tb testing.TB, store locks.Store, resource string) {
			run(tb, store, expire, resource)
		},
		DeleteRow: func(tb testing.TB, store locks.Store, resource string) {
			run(tb, store, "DELETE FROM {table} WHERE resource = ?", resource)
		},
		Truncate: func(tb testing.TB, store locks.Store) { run(tb, store, truncate) },
		Rows: func(tb testing.TB, store locks.Store) int {
			return scan[int](tb, doors[store].db, "SELECT count(*) FROM "+doors[store].table)
		},
		ExpireTicket: func(tb testing.TB, store locks.Store, number int64) {
			run(tb, store, strings.ReplaceAll(strings.ReplaceAll(expire, "{table}", "{waiters}"), "resource", "number"), number)
		},
		ExpireShare: func(tb testing.TB, store locks.Store, resource, owner string) {
			run(tb, store, strings.ReplaceAll(expire, "{table}", "{shares}")+" AND owner = ?", resource, owner)
			run(tb, store, `UPDATE {table} AS l SET expires_at = (SELECT max(expires_at) FROM {shares}
				WHERE resource = l.resource AND lease = l.token) WHERE resource = ? AND owner = ''`, resource)
		},
		Begin: func(tb testing.TB, store locks.Store) lockstest.Transaction {
			tb.Helper()
			return beginSuiteTx(tb, doors[store].db, store)
		},
	}
}

// Every promise on PostgreSQL, through both drivers and every way they have of sending a statement, with pools of
// their own for the contenders.
func TestSuiteOnPostgres(t *testing.T) {
	for name, handle := range handles {
		t.Run(name, func(t *testing.T) {
			if raceDetector && strings.Contains(handle.parameters, "exec_mode") {
				t.Skip("two minutes, in which how a statement is sent races with nothing: make test-latest has every promise with " +
					handle.parameters)
			}
			if testing.Short() && strings.Contains(handle.parameters, "serializable") {
				t.Skip("a minute: every promise with " + handle.parameters)
			}
			dsn := withParameters(postgres.Shared(t).Database(t), handle.parameters)
			doors := map[locks.Store]backDoors{}
			open := func(tb testing.TB, n int) []locks.Store {
				tb.Helper()
				schema := fmt.Sprintf("s%d", schemas.Add(1))
				stores := make([]locks.Store, n)
				for i := range stores {
					db := open(tb, handle.driver, dsn)
					db.SetMaxOpenConns(10) // connections are slow to open on a busy machine, and the server has 200
					if i == 0 {
						exec(tb, db, "CREATE SCHEMA "+schema)
						if err := bunstore.Migrate(tb.Context(), db, bunstore.WithSchema(schema)); err != nil {
							tb.Fatalf("Migrate: %v", err)
						}
					}
					stores[i] = newStore(tb, db, bunstore.WithSchema(schema), bunstore.WithCallLimit(time.Minute), quickPoll)
					doors[stores[i]] = backDoors{db, schema + ".distributed_locks"}
				}
				return stores
			}
			h := harness(open, doors,
				"UPDATE {table} SET expires_at = clock_timestamp() WHERE resource = ?", "TRUNCATE {table} RESTART IDENTITY")
			if !handle.transactions {
				h.Begin = nil
			}
			lockstest.Run(t, h)
		})
	}
}

// Every promise on SQLite through the driver that needs cgo; the root module has the other one.
func TestSuiteOnSQLiteWithCgo(t *testing.T) {
	doors := map[locks.Store]backDoors{}
	open := func(tb testing.TB, n int) []locks.Store {
		tb.Helper()
		file := filepath.Join(tb.TempDir(), "leases.db")
		stores := make([]locks.Store, n)
		for i := range stores {
			sqldb, err := sql.Open("sqlite3", "file:"+file+"?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=50")
			if err != nil {
				tb.Fatal(err)
			}
			db := bun.NewDB(sqldb, sqlitedialect.New())
			tb.Cleanup(func() { db.Close() })
			if i == 0 {
				if err := bunstore.Migrate(tb.Context(), db); err != nil {
					tb.Fatalf("Migrate: %v", err)
				}
			}
			stores[i] = newStore(tb, db, quickPoll)
			doors[stores[i]] = backDoors{db, "distributed_locks"}
		}
		return stores
	}
	h := harness(open, doors, "UPDATE {table} SET expires_at = 0 WHERE resource = ?", "DELETE FROM {table}")
	h.OneWriter = true
	lockstest.Run(t, h)
}

// quickPoll keeps the promises of waiting short: these stores hear nothing of each other.
var quickPoll = bunstore.WithPoll(10*time.Millisecond, 100*time.Millisecond)

func newStore(tb testing.TB, db *bun.DB, options ...bunstore.Option) *bunstore.Store {
	tb.Helper()
	store, err := bunstore.New(db, options...)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return store
}
