package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

type rowAccount struct {
	bun.BaseModel `bun:"table:accounts,alias:a"`

	ID      int64 `bun:",pk"`
	Branch  int64
	Balance int64
}

// rowAccounts makes ten accounts with 100 each.
func rowAccounts(tb testing.TB, db *bun.DB) {
	tb.Helper()
	exec(tb, db, `CREATE TABLE accounts (id bigint PRIMARY KEY, branch bigint NOT NULL, balance bigint NOT NULL);
		CREATE TABLE branches (id bigint PRIMARY KEY, city text NOT NULL);
		INSERT INTO branches VALUES (1, 'Utrecht');
		INSERT INTO accounts SELECT n, 1, 100 FROM generate_series(1, 10) AS n`)
}

// rowTx begins a transaction that is rolled back with the test.
func rowTx(tb testing.TB, db *bun.DB, options *sql.TxOptions) bun.Tx {
	tb.Helper()
	tx, err := db.BeginTx(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tx.Rollback() })
	return tx
}

func mustLock(tb testing.TB, tx bun.IDB, id int64, options ...rowlock.Option) rowAccount {
	tb.Helper()
	account := rowAccount{ID: id}
	if err := rowlock.Lock(tb.Context(), tx, &account, options...); err != nil {
		tb.Fatalf("Lock: %v", err)
	}
	return account
}

// usable wants the transaction to go on, with the timeouts that it had and without our savepoint's locks.
func usable(tb testing.TB, db *bun.DB, tx bun.Tx, want string) {
	tb.Helper()
	var pid int
	var timeouts string
	err := tx.NewRaw("SELECT pg_backend_pid(), current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')").
		Scan(tb.Context(), &pid, &timeouts)
	if err != nil {
		tb.Fatalf("the transaction is not usable: %v", err)
	}
	if timeouts != want {
		tb.Errorf("timeouts are %q, want %q as before", timeouts, want)
	}
	const left = `SELECT count(*) FROM pg_locks WHERE pid = ? AND (NOT granted OR locktype = 'tuple' OR relation = 'accounts'::regclass)`
	if n := scan[int](tb, db, left, pid); n != 0 {
		tb.Errorf("%d locks are left of a refused call", n)
	}
}

// PostgreSQL 13.3.2, table 13.3: which strength keeps out which.
func TestRowLockStrengths(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	strengths := []struct {
		name   string
		option rowlock.Option
	}{
		{"KEY SHARE", rowlock.ForKeyShare()},
		{"SHARE", rowlock.ForShare()},
		{"NO KEY UPDATE", rowlock.ForNoKeyUpdate()},
		{"UPDATE", rowlock.ForUpdate()},
	}
	conflict := [4][4]bool{
		{false, false, false, true},
		{false, false, true, true},
		{false, true, true, true},
		{true, true, true, true},
	}
	for i, held := range strengths {
		for j, wanted := range strengths {
			one, two := rowTx(t, db, nil), rowTx(t, db, nil)
			mustLock(t, one, 1, held.option)
			for policy, option := range map[string]rowlock.Option{"NOWAIT": rowlock.NoWait(), "SKIP LOCKED": rowlock.SkipLocked()} {
				err := rowlock.Lock(t.Context(), two, &rowAccount{ID: 1}, wanted.option, option)
				if got := errors.Is(err, locks.ErrHeld); got != conflict[i][j] || err != nil && !got {
					t.Errorf("FOR %s %s beside FOR %s = %v, want held: %t", wanted.name, policy, held.name, err, conflict[i][j])
				}
			}
			one.Rollback()
			two.Rollback()
		}
	}
	one := rowTx(t, db, nil)
	mustLock(t, one, 1)
	if err := rowlock.Lock(t.Context(), rowTx(t, db, nil), &rowAccount{ID: 1}, rowlock.ForKeyShare(), rowlock.NoWait()); !errors.Is(err, locks.ErrHeld) {
		t.Errorf("beside the default strength, that of UPDATE: %v, want held", err)
	}
}

// However a call is refused, the transaction goes on as it was; what it then locks it has.
func TestARefusedRowLockLeavesTheTransactionAsItWas(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, withParameters(dsn, ""))
		rowAccounts(t, db)
		holder := rowTx(t, db, nil)
		mustLock(t, holder, 1)
		first := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Order("id") }
		wrong := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("no_such_column = 1") }
		const limit = 100 * time.Millisecond
		for _, test := range []struct {
			name  string
			call  func(tx bun.IDB) error
			is    error
			limit time.Duration
		}{
			{"NOWAIT", func(tx bun.IDB) error {
				return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}, rowlock.NoWait(), rowlock.WithLimit(time.Minute))
			}, locks.ErrHeld, 0},
			{"SKIP LOCKED", func(tx bun.IDB) error { return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}, rowlock.SkipLocked()) }, locks.ErrHeld, 0},
			{"the limit", func(tx bun.IDB) error {
				return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}, rowlock.WithLimit(limit))
			}, locks.ErrHeld, limit},
			{"rows", func(tx bun.IDB) error {
				return rowlock.LockRows(t.Context(), tx, &[]rowAccount{}, first, rowlock.NoWait(), rowlock.WithLimit(time.Minute))
			}, locks.ErrHeld, 0},
			{"no row", func(tx bun.IDB) error { return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 99}) }, sql.ErrNoRows, 0},
			{"no row to skip", func(tx bun.IDB) error {
				return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 99}, rowlock.SkipLocked())
			}, sql.ErrNoRows, 0},
			{"a fault", func(tx bun.IDB) error { return rowlock.LockRows(t.Context(), tx, &[]rowAccount{}, wrong) }, nil, 0},
		} {
			tx := rowTx(t, db, nil)
			if _, err := tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '7s'; SET LOCAL statement_timeout = '1min'"); err != nil {
				t.Fatal(err)
			}
			err := test.call(tx)
			var held *rowlock.HeldError
			switch {
			case err == nil, test.is != nil && !errors.Is(err, test.is), errors.Is(err, locks.ErrRetryable):
				t.Errorf("%s: err = %v, want %v", test.name, err, test.is)
			case errors.As(err, &held) != (test.is == locks.ErrHeld): //nolint:errorlint // the table's own
				t.Errorf("%s: err = %v is a HeldError: %t", test.name, err, held != nil)
			case held != nil && (held.Table != "accounts" || held.Limit != test.limit):
				t.Errorf("%s: %+v, want the table and a limit of %v", test.name, held, test.limit)
			}
			usable(t, db, tx, "7s 1min")
			mustLock(t, tx, 2)
			if err := rowlock.Lock(t.Context(), holder, &rowAccount{ID: 2}, rowlock.SkipLocked()); !errors.Is(err, locks.ErrHeld) {
				t.Errorf("%s: what the transaction locked afterwards is not held: %v", test.name, err)
			}
			if _, err := tx.ExecContext(t.Context(), "ROLLBACK TO SAVEPOINT rowlease_rowlock"); err == nil {
				t.Errorf("%s: our savepoint is still there", test.name)
			}
			tx.Rollback()
		}
	})
}

// A granted lock leaves no timeout behind either, neither in the transaction nor in the session after it.
func TestAGrantedRowLockRestoresTheTimeouts(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		rowAccounts(t, db)
		const timeouts = "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')"
		for _, test := range []struct{ name, before, during, during2, within, after string }{
			{"defaults", "", "", "", "0 0", "0 0"},
			{"the session's", "SET lock_timeout = '7s'; SET statement_timeout = '1min'", "", "", "7s 1min", "7s 1min"},
			{"the transaction's", "", "SET LOCAL lock_timeout = '8s'", "", "8s 1min", "7s 1min"},
			{"the session's, set in the transaction", "", "SET lock_timeout = '9s'", "", "9s 1min", "9s 1min"},
			{"set after the lock", "", "", "SET lock_timeout = '6s'", "6s 1min", "6s 1min"},
		} {
			if test.before != "" {
				exec(t, db, test.before)
			}
			err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				if test.during != "" {
					if _, err := tx.ExecContext(ctx, test.during); err != nil {
						return err
					}
				}
				mustLock(t, tx, 1)
				mustLock(t, tx, 2, rowlock.NoWait())
				if test.during2 != "" {
					if _, err := tx.ExecContext(ctx, test.during2); err != nil {
						return err
					}
				}
				var got string
				if err := tx.NewRaw(timeouts).Scan(ctx, &got); err != nil || got != test.within {
					t.Errorf("%s: %q in the transaction (%v), want %q", test.name, got, err, test.within)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := scan[string](t, db, timeouts); got != test.after {
				t.Errorf("%s: %q after the transaction, want %q", test.name, got, test.after)
			}
		}
	})
}

// A lock that was waited for reads the row as its holder left it.
func TestARowLockThatWaitedReadsTheNewestVersion(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	holder, waiter := rowTx(t, db, nil), rowTx(t, db, nil)
	account := mustLock(t, holder, 1)
	account.Balance = 42
	if _, err := holder.NewUpdate().Model(&account).WherePK().Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := rowAccount{ID: 1}
	done := make(chan error, 1)
	go func() { done <- rowlock.Lock(t.Context(), waiter, &got, rowlock.WithLimit(time.Minute)) }()
	eventually(t, "the second waits", waitingForLocks(t, db))
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || got.Balance != 42 {
		t.Errorf("Lock = %v with a balance of %d, want 42", err, got.Balance)
	}
}

// A lock on the whole table is waited for whatever the policy for rows is, up to the limit.
func TestARowLockBehindATableLock(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	holder, tx := rowTx(t, db, nil), rowTx(t, db, nil)
	if _, err := holder.ExecContext(t.Context(), "LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	const limit = 50 * time.Millisecond
	for name, policy := range map[string]rowlock.Option{"wait": rowlock.ForUpdate(), "NOWAIT": rowlock.NoWait(), "SKIP LOCKED": rowlock.SkipLocked()} {
		for what, call := range map[string]func() error{
			"Lock": func() error {
				return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}, policy, rowlock.WithLimit(limit))
			},
			"CheckPlan": func() error {
				return rowlock.CheckPlan(t.Context(), tx, &rowAccount{ID: 1}, nil, policy, rowlock.WithLimit(limit))
			},
		} {
			err := call()
			var held *rowlock.HeldError
			if !errors.As(err, &held) || held.Limit != limit {
				t.Errorf("%s, %s: err = %v, want held for longer than %v", what, name, err, limit)
			}
			usable(t, db, tx, "0 0")
		}
	}
}

// What takes too long as a whole is no answer "held", and a shorter limit of the session's own is a fault as before.
func TestARowLockThatTakesTooLong(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	tx := rowTx(t, db, nil)
	slow := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("id = 1 AND pg_sleep(60) IS NOT NULL") }
	accounts := []rowAccount{{}}
	err := rowlock.LockRows(t.Context(), tx, &accounts, slow, rowlock.WithLimit(time.Millisecond))
	if !errors.Is(err, locks.ErrBusy) || errors.Is(err, locks.ErrHeld) || len(accounts) != 0 {
		t.Errorf("LockRows = %v with %d rows, want busy with none", err, len(accounts))
	}
	usable(t, db, tx, "0 0")
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL statement_timeout = '3s'"); err != nil {
		t.Fatal(err)
	}
	err = rowlock.LockRows(t.Context(), tx, &accounts, slow, rowlock.WithLimit(time.Minute))
	if err == nil || errors.Is(err, locks.ErrBusy) || errors.Is(err, locks.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("LockRows = %v, want the server's own error", err)
	}
	usable(t, db, tx, "0 3s")
}

// The context's end during a wait is the context's error, and the row is free when its holder ends.
func TestTheContextEndsDuringARowLock(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		rowAccounts(t, db)
		holder, waiter := rowTx(t, db, nil), rowTx(t, db, nil)
		mustLock(t, holder, 1)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := rowlock.Lock(ended, waiter, &rowAccount{ID: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock on a context that has ended = %v", err)
		}
		usable(t, db, waiter, "0 0")

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := rowlock.Lock(ctx, waiter, &rowAccount{ID: 1}, rowlock.WithLimit(time.Minute))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
			t.Errorf("Lock beyond its deadline = %v", err)
		}

		// pgdriver tells a cancellation only when the answer has come: here when the limit has passed.
		limit, want := time.Minute, context.Canceled
		if driver == "pgdriver" {
			limit = time.Second
		}
		canceller := rowTx(t, db, nil)
		pid := inTx(t, canceller, "SELECT pg_backend_pid()::text")
		waits := func() bool {
			return scan[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = ?::int AND wait_event_type = 'Lock'", pid) > 0
		}
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- rowlock.Lock(ctx, canceller, &rowAccount{ID: 1}, rowlock.WithLimit(limit)) }()
		eventually(t, "the call waits, or its limit has passed", func() bool { return len(done) > 0 || waits() })
		if len(done) > 0 {
			want = locks.ErrHeld
		}
		cancel()
		if err := <-done; !errors.Is(err, want) && (driver == "pgx" || !errors.Is(err, locks.ErrHeld)) {
			t.Errorf("Lock whose context was cancelled = %v, want %v", err, want)
		}
		waiter.Rollback()
		canceller.Rollback()
		holder.Rollback()
		eventually(t, "the row is free", func() bool {
			tx := rowTx(t, db, nil)
			defer tx.Rollback()
			return rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}, rowlock.NoWait()) == nil
		})
	})
}

// elsewhere is a resolver of connections that must not be asked.
type elsewhere struct{ t *testing.T }

func (e elsewhere) ResolveConn(context.Context, bun.Query) bun.IConn {
	e.t.Error("a statement was routed")
	return nil
}
func (elsewhere) Close() error { return nil }

// rowHook keeps the statements that bun sends.
type rowHook struct{ statements []string }

func (h *rowHook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	h.statements = append(h.statements, event.Query)
	return ctx
}
func (*rowHook) AfterQuery(context.Context, *bun.QueryEvent) {}

// Every handle on a transaction will do, and a statement goes nowhere else.
func TestRowLockHandles(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		sqldb, err := drivers[driver](dsn)
		if err != nil {
			t.Fatal(err)
		}
		hook := new(rowHook)
		db := bun.NewDB(sqldb, pgdialect.New(), bun.WithConnResolver(elsewhere{t})).WithQueryHook(hook)
		defer db.Close()
		rowAccounts(t, open(t, driver, dsn))

		tx := rowTx(t, db, nil)
		hook.statements = nil
		mustLock(t, tx, 1)
		if len(hook.statements) != 1 {
			t.Errorf("the hook saw %q, want the query alone", hook.statements)
		}
		other := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("id = 2").Conn(db).For("SHARE") }
		if err := rowlock.LockRows(t.Context(), tx, &[]rowAccount{}, other); err != nil {
			t.Error(err)
		}
		savepoint, err := tx.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		mustLock(t, savepoint, 3)

		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		held := func(id int64, want bool) {
			t.Helper()
			if err := rowlock.Lock(t.Context(), conn, &rowAccount{ID: id}, rowlock.ForShare(), rowlock.NoWait()); errors.Is(err, locks.ErrHeld) != want || !want && err != nil {
				t.Errorf("row %d: %v, want held: %t", id, err, want)
			}
		}
		invalid := func(what string, err error, field string) {
			t.Helper()
			var invalid *locks.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s: err = %v, want an InvalidError for the %s", what, err, field)
			}
		}
		invalid("outside of a transaction", rowlock.Lock(t.Context(), conn, &rowAccount{ID: 1}), "transaction")
		if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		held(1, true)
		held(2, true)
		held(3, true)
		if err := savepoint.Rollback(); err != nil {
			t.Fatal(err)
		}
		held(3, false)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		held(1, false)
		invalid("over", rowlock.Lock(t.Context(), tx, &rowAccount{ID: 1}), "transaction")
		invalid("a pool", rowlock.Lock(t.Context(), db, &rowAccount{ID: 1}), "transaction")
		if _, err := conn.ExecContext(t.Context(), "SELECT 1/0"); err == nil {
			t.Fatal("1/0 passed")
		}
		invalid("aborted", rowlock.Lock(t.Context(), conn, &rowAccount{ID: 1}), "transaction")
	})
}
