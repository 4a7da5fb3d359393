package bunstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// withReader opens a file in rollback-journal mode, where a commit waits for readers, and one that reads until it is told
// to end.
func withReader(t *testing.T, busyTimeout int) (db *bun.DB, file string, end func()) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "test.db")
	sqldb, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=journal_mode(DELETE)&_pragma=busy_timeout(%d)", file, busyTimeout))
	if err != nil {
		t.Fatal(err)
	}
	db = bun.NewDB(sqldb, sqlitedialect.New())
	t.Cleanup(func() { db.Close() })
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	reader, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	execConn(t, reader, "BEGIN")
	execConn(t, reader, "SELECT count(*) FROM distributed_locks")
	return db, file, func() { execConn(t, reader, "ROLLBACK") }
}

func execConn(t *testing.T, conn bun.Conn, statement string) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// A commit that was given up, in one long wait of the driver's or in many short ones, does not put its connection back
// into the pool with the transaction open.
func TestACommitThatWasGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busyTimeout int
		busyLimit   time.Duration
	}{"one wait": {3000, 50 * time.Millisecond}, "many": {10, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, file, end := withReader(t, c.busyTimeout)
			store := newStore(t, db, bunstore.WithCallLimit(50*time.Millisecond), bunstore.WithBusyLimit(c.busyLimit))
			err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
				_, err := tx.Acquire(ctx, newRequest("job:42", "w1"))
				return err
			})
			if err == nil {
				t.Error("committed beside a reader")
			}
			end()
			execSQL(t, openSQLiteBusy(t, file, 30000), "CREATE TABLE another_process (n)")
		})
	}
}

// SQLite keeps a transaction open whose commit was busy: that is no rollback.
func TestOutcomeOfABusyCommit(t *testing.T) {
	t.Parallel()
	db, _, end := withReader(t, 10)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	execConn(t, conn, "BEGIN IMMEDIATE")
	execConn(t, conn, "CREATE TABLE notes (n)")
	_, err = conn.ExecContext(t.Context(), "COMMIT")
	if got := bunstore.OutcomeOf(err); err == nil || got != locks.Unknown {
		t.Errorf("OutcomeOf(%v) = %v, want unknown", err, got)
	}
	end()
	execConn(t, conn, "COMMIT") // tried again, as SQLite says
}
