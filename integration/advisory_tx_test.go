package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

func begin(t *testing.T, db *bun.DB, options *sql.TxOptions) bun.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func rollback(t *testing.T, tx bun.Tx) {
	t.Helper()
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
}

// inTx answers a query of one column in the transaction.
func inTx(t *testing.T, tx bun.IDB, query string) (answer string) {
	t.Helper()
	if err := tx.NewRaw(query).Scan(t.Context(), &answer); err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return answer
}

func tryLockTx(t *testing.T, tx bun.IDB, name string, options ...advisory.Option) {
	t.Helper()
	if err := advisory.TryLockTx(t.Context(), tx, name, options...); err != nil {
		t.Fatalf("TryLockTx(%q) = %v", name, err)
	}
}

const (
	myAdvisoryLocks = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
	aborting        = "SELECT 1/0"
)

func TestAdvisoryTx(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		mine, other := open(t, driver, dsn), open(t, driver, dsn)
		shared := advisory.Shared()

		t.Run("shared and exclusive", func(t *testing.T) {
			for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
				first, second := begin(t, mine, nil), begin(t, other, &sql.TxOptions{Isolation: level})
				tryLockTx(t, first, "a")
				tryLockTx(t, first, "a", shared) // again, of its own
				tryLockTx(t, second, "b")
				held(t, "exclusive", advisory.TryLockTx(t.Context(), second, "a"))
				held(t, "shared", advisory.TryLockTx(t.Context(), second, "a", shared))
				held(t, "waiting", advisory.LockTx(t.Context(), second, "a", advisory.WithLimit(time.Millisecond)))
				if n := inTx(t, second, myAdvisoryLocks); n != "1" {
					t.Errorf("%s locks after refused tries, want that of b", n)
				}
				if err := second.Commit(); err != nil {
					t.Errorf("%v: commit after refused tries: %v", level, err)
				}
				rollback(t, first)

				first, second = begin(t, mine, nil), begin(t, other, &sql.TxOptions{Isolation: level})
				tryLockTx(t, first, "a", shared)
				tryLockTx(t, second, "a", shared)
				held(t, "exclusive beside shared", advisory.TryLockTx(t.Context(), second, "a"))
				rollback(t, first)
				tryLockTx(t, second, "a")
				rollback(t, second)
			}
		})

		t.Run("rollback and savepoint", func(t *testing.T) {
			first, second := begin(t, mine, nil), begin(t, other, nil)
			savepoint, err := first.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			tryLockTx(t, savepoint, "a")
			held(t, "in a savepoint", advisory.TryLockTx(t.Context(), second, "a"))
			rollback(t, savepoint)
			tryLockTx(t, second, "a")
			rollback(t, second)
			tryLockTx(t, first, "a")
			rollback(t, first)
			tryLockTx(t, begin(t, other, nil), "a")
		})

		t.Run("a session's", func(t *testing.T) {
			session := lockNow(t, advisoryLocker(t, other), "s")
			tx := begin(t, mine, nil)
			held(t, "held by a session", advisory.TryLockTx(t.Context(), tx, "s"))
			unlock(t, session)
			tryLockTx(t, tx, "s")
			rollback(t, tx)
		})

		t.Run("a wait and its limit", func(t *testing.T) {
			first, second := begin(t, mine, nil), begin(t, other, nil)
			tryLockTx(t, first, "w")
			inTx(t, second, "SELECT set_config('lock_timeout', '7s', true)")
			held(t, "after the limit", advisory.LockTx(t.Context(), second, "w", advisory.WithLimit(20*time.Millisecond)))
			if got := inTx(t, second, "SHOW lock_timeout"); got != "7s" {
				t.Errorf("lock_timeout is %s after a refusal, want 7s", got)
			}
			granted := make(chan error, 1)
			go func() { granted <- advisory.LockTx(t.Context(), second, "w", advisory.WithLimit(time.Minute)) }()
			eventually(t, "the second waits", waitingForLocks(t, mine))
			rollback(t, first)
			if err := within(t, "the waiter's answer", granted); err != nil {
				t.Fatalf("LockTx = %v", err)
			}
			if got := inTx(t, second, "SHOW lock_timeout"); got != "7s" {
				t.Errorf("lock_timeout is %s after a wait, want 7s", got)
			}
			held(t, "by the waiter", advisory.TryLockTx(t.Context(), begin(t, mine, nil), "w"))
			if err := second.Commit(); err != nil {
				t.Error(err)
			}
		})

		t.Run("no open transaction", func(t *testing.T) {
			conn, err := mine.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			over := begin(t, mine, nil)
			if err := over.Commit(); err != nil {
				t.Fatal(err)
			}
			for what, handle := range map[string]bun.IDB{"a bare connection": conn, "a transaction that is over": over} {
				for _, err := range []error{advisory.TryLockTx(t.Context(), handle, "n"), advisory.LockTx(t.Context(), handle, "n")} {
					if !errors.Is(err, locks.ErrInvalid) {
						t.Errorf("%s: %v, want ErrInvalid", what, err)
					}
				}
			}
			if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
				t.Fatal(err)
			}
			if err := advisory.LockTx(t.Context(), conn, "n"); err != nil {
				t.Errorf("LockTx after BEGIN = %v", err)
			}
			if n := inTx(t, conn, myAdvisoryLocks); n != "1" {
				t.Errorf("%s locks, want 1", n)
			}
			if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
				t.Error(err)
			}
		})

		t.Run("an aborted transaction", func(t *testing.T) {
			for _, lock := range []func(context.Context, bun.IDB, string, ...advisory.Option) error{advisory.LockTx, advisory.TryLockTx} {
				tx := begin(t, mine, nil)
				if _, err := tx.ExecContext(t.Context(), aborting); err == nil {
					t.Fatal("no error")
				}
				var invalid *locks.InvalidError
				if err := lock(t.Context(), tx, "n"); !errors.As(err, &invalid) || invalid.Field != "transaction" || errors.Is(err, locks.ErrHeld) {
					t.Errorf("%v, want an InvalidError of the transaction", err)
				}
				tx.Rollback()
			}
			if n := scan[int](t, mine, advisoryLocks); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	})
}

// Two transactions that wait for each other: PostgreSQL ends one wait, and that transaction can be begun again.
func TestAdvisoryTxDeadlock(t *testing.T) {
	t.Parallel()
	db := soonDeadlocked(t)
	names := [2]string{"a", "b"}
	var txs [2]bun.Tx
	for i, name := range names {
		txs[i] = begin(t, db, nil)
		tryLockTx(t, txs[i], name)
	}
	results := make(chan error)
	for i := range txs {
		go func() {
			err := advisory.LockTx(t.Context(), txs[i], names[1-i], advisory.WithLimit(time.Minute))
			if err != nil {
				txs[i].Rollback()
			}
			results <- err
		}()
	}
	first, second := <-results, <-results
	if first == nil {
		first, second = second, first
	}
	if !errors.Is(first, locks.ErrSerialization) || second != nil {
		t.Errorf("%v and %v, want ErrSerialization for one", first, second)
	}
}
