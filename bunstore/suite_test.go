package bunstore_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockstest"
)

// openSQLite opens a pool of its own on the file, as the README tells hosts to.
func openSQLite(tb testing.TB, file string) *bun.DB {
	tb.Helper()
	return openSQLiteBusy(tb, file, 1000)
}

// openSQLiteBusy waits so many milliseconds in SQLite for the file's writer, before the store does.
func openSQLiteBusy(tb testing.TB, file string, timeout int) *bun.DB {
	tb.Helper()
	sqldb, err := sql.Open("sqlite", fmt.Sprintf(
		"file:%s?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(%d)", file, timeout))
	if err != nil {
		tb.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	tb.Cleanup(func() { db.Close() })
	return db
}

// migrated is openSQLite on a new file with the lease table.
func migrated(tb testing.TB) *bun.DB {
	tb.Helper()
	db := openSQLite(tb, filepath.Join(tb.TempDir(), "leases.db"))
	if err := bunstore.Migrate(tb.Context(), db); err != nil {
		tb.Fatalf("Migrate: %v", err)
	}
	return db
}

func newStore(tb testing.TB, db *bun.DB, options ...bunstore.Option) *bunstore.Store {
	tb.Helper()
	store, err := bunstore.New(db, options...)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return store
}

func execSQL(tb testing.TB, db *bun.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func TestSuiteOnSQLite(t *testing.T) {
	dbs := map[locks.Store]*bun.DB{}
	lockstest.Run(t, lockstest.Harness{
		Open: func(tb testing.TB, n int) []locks.Store {
			file := filepath.Join(tb.TempDir(), "leases.db")
			stores := make([]locks.Store, n)
			for i := range stores {
				db := openSQLiteBusy(tb, file, 50) // what is refused for being busy takes at least as long
				if i == 0 {
					if err := bunstore.Migrate(tb.Context(), db); err != nil {
						tb.Fatalf("Migrate: %v", err)
					}
				}
				stores[i] = newStore(tb, db, bunstore.WithPoll(10*time.Millisecond, 100*time.Millisecond))
				dbs[stores[i]] = db
			}
			return stores
		},
		Expire: func(tb testing.TB, store locks.Store, resource string) {
			execSQL(tb, dbs[store], "UPDATE distributed_locks SET expires_at = 0 WHERE resource = ?", resource)
		},
		DeleteRow: func(tb testing.TB, store locks.Store, resource string) {
			execSQL(tb, dbs[store], "DELETE FROM distributed_locks WHERE resource = ?", resource)
		},
		Truncate: func(tb testing.TB, store locks.Store) {
			execSQL(tb, dbs[store], "DELETE FROM distributed_locks")
			execSQL(tb, dbs[store], "DELETE FROM sqlite_sequence WHERE name = 'distributed_locks'")
		},
		Rows: func(tb testing.TB, store locks.Store) (n int) {
			if err := dbs[store].QueryRowContext(tb.Context(), "SELECT count(*) FROM distributed_locks").Scan(&n); err != nil {
				tb.Fatal(err)
			}
			return n
		},
		ExpireTicket: func(tb testing.TB, store locks.Store, number int64) {
			execSQL(tb, dbs[store], "UPDATE distributed_lock_waiters SET expires_at = 0 WHERE number = ?", number)
		},
		ExpireShare: func(tb testing.TB, store locks.Store, resource, owner string) {
			execSQL(tb, dbs[store], "UPDATE distributed_lock_shares SET expires_at = 0 WHERE resource = ? AND owner = ?", resource, owner)
			execSQL(tb, dbs[store], `UPDATE distributed_locks AS l SET expires_at = coalesce((SELECT max(expires_at) FROM distributed_lock_shares
				WHERE resource = l.resource AND lease = l.token), 0) WHERE resource = ? AND owner = ''`, resource)
		},
		Begin: func(tb testing.TB, store locks.Store) lockstest.Transaction {
			tb.Helper()
			return beginSuiteTx(tb, dbs[store], store)
		},
		OneWriter: true,
	})
}
