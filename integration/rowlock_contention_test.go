package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// soonDeadlocked is a database of the test's own whose server does not wait long before it looks for a deadlock.
func soonDeadlocked(t *testing.T) *bun.DB {
	t.Helper()
	dsn := postgres.Shared(t).Database(t)
	admin := open(t, "pgx", dsn)
	exec(t, admin, fmt.Sprintf("ALTER DATABASE %q SET deadlock_timeout = '10ms'", scan[string](t, admin, "SELECT current_database()")))
	return open(t, "pgx", dsn)
}

// Two transactions that lock a, b and b, a: one typed error, the other finishes, and nothing is left.
func TestRowLockDeadlock(t *testing.T) {
	t.Parallel()
	db := soonDeadlocked(t)
	rowAccounts(t, db)
	var wg sync.WaitGroup
	var both sync.WaitGroup
	both.Add(2)
	results := make(chan error, 2)
	for _, order := range [][2]int64{{1, 2}, {2, 1}} {
		wg.Go(func() {
			results <- db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				err := rowlock.Lock(ctx, tx, &rowAccount{ID: order[0]}, rowlock.WithLimit(time.Minute))
				both.Done()
				both.Wait()
				if err != nil {
					return err
				}
				return rowlock.Lock(ctx, tx, &rowAccount{ID: order[1]}, rowlock.WithLimit(time.Minute))
			})
		})
	}
	wg.Wait()
	victims := 0
	for range 2 {
		if err := <-results; err != nil {
			victims++
			if !errors.Is(err, locks.ErrSerialization) || !errors.Is(err, locks.ErrRetryable) || errors.Is(err, locks.ErrHeld) {
				t.Errorf("err = %v, want ErrSerialization", err)
			}
		}
	}
	if victims != 1 {
		t.Errorf("%d victims, want 1", victims)
	}
	tx := rowTx(t, db, nil)
	mustLock(t, tx, 1, rowlock.NoWait())
	mustLock(t, tx, 2, rowlock.NoWait())
}

// A row that was changed after the transaction's snapshot: under READ COMMITTED its newest version is locked, the
// stricter levels refuse, typed.
func TestRowLockUnderEveryIsolation(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		rowAccounts(t, db)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx := rowTx(t, db, &sql.TxOptions{Isolation: level})
			if _, err := tx.NewSelect().Model((*rowAccount)(nil)).Count(t.Context()); err != nil {
				t.Fatal(err)
			}
			exec(t, db, "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
			want := scan[int64](t, db, "SELECT balance FROM accounts WHERE id = 1")
			for _, policy := range []rowlock.Option{rowlock.ForUpdate(), rowlock.NoWait(), rowlock.SkipLocked()} {
				account := rowAccount{ID: 1}
				err := rowlock.Lock(t.Context(), tx, &account, policy)
				switch {
				case level == sql.LevelReadCommitted && (err != nil || account.Balance != want):
					t.Errorf("%v: Lock = %v with a balance of %d, want %d", level, err, account.Balance, want)
				case level != sql.LevelReadCommitted && (!errors.Is(err, locks.ErrSerialization) || errors.Is(err, locks.ErrHeld)):
					t.Errorf("%v: Lock = %v, want ErrSerialization", level, err)
				}
			}
			mustLock(t, tx, 2) // unchanged since the snapshot: the transaction is usable
			tx.Rollback()
		}
	})
}

// Eight workers take 200 jobs with SKIP LOCKED: each is taken once.
func TestRowLockQueue(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	db.SetMaxOpenConns(10)
	type job struct {
		bun.BaseModel `bun:"table:jobs"`

		ID    int64 `bun:",pk"`
		State string
	}
	exec(t, db, `CREATE TABLE jobs (id bigint PRIMARY KEY, state text NOT NULL, runs int NOT NULL DEFAULT 0);
		INSERT INTO jobs SELECT n, 'ready' FROM generate_series(1, 200) AS n`)
	ready := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("state = 'ready'").Order("id").Limit(3) }
	var wg sync.WaitGroup
	var taken sync.Map
	for worker := range 8 {
		wg.Go(func() {
			for done := false; !done; {
				err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
					var jobs []*job
					if err := rowlock.LockRows(ctx, tx, &jobs, ready, rowlock.SkipLocked()); err != nil {
						return err
					}
					for _, j := range jobs {
						if other, twice := taken.LoadOrStore(j.ID, worker); twice {
							t.Errorf("job %d was taken by workers %v and %d", j.ID, other, worker)
						}
						if _, err := tx.ExecContext(ctx, "UPDATE jobs SET state = 'done', runs = runs + 1 WHERE id = ?", j.ID); err != nil {
							return err
						}
					}
					done = len(jobs) == 0
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := scan[int](t, db, "SELECT count(*) FROM jobs WHERE state = 'done' AND runs = 1"); n != 200 {
		t.Errorf("%d of 200 jobs were done once", n)
	}
}

// All rows or none, and no joined table's.
func TestRowLockRows(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	one, two := rowTx(t, db, nil), rowTx(t, db, nil)
	var accounts []rowAccount
	err := rowlock.LockRows(t.Context(), one, &accounts, func(q *bun.SelectQuery) *bun.SelectQuery {
		return q.Join("LEFT JOIN branches AS b ON b.id = a.branch").Where("b.city = 'Utrecht' AND a.id BETWEEN 3 AND 5").OrderExpr("a.id DESC")
	})
	if err != nil || len(accounts) != 3 || accounts[0] != (rowAccount{ID: 5, Branch: 1, Balance: 100}) {
		t.Fatalf("LockRows = %+v, %v", accounts, err)
	}
	if _, err := two.ExecContext(t.Context(), "SELECT 1 FROM branches FOR UPDATE NOWAIT"); err != nil {
		t.Errorf("the joined table is locked: %v", err)
	}
	byKey := func(q *bun.SelectQuery) *bun.SelectQuery { return q.WherePK().Order("id") }
	accounts = []rowAccount{{ID: 1}, {ID: 2}, {ID: 3}}
	if err := rowlock.LockRows(t.Context(), two, &accounts, byKey, rowlock.NoWait()); !errors.Is(err, locks.ErrHeld) || len(accounts) != 0 {
		t.Errorf("LockRows = %v with %d rows, want held with none", err, len(accounts))
	}
	mustLock(t, one, 1, rowlock.NoWait()) // which two had before it was refused
	accounts = []rowAccount{{ID: 1}, {ID: 6}, {ID: 7}}
	if err := rowlock.LockRows(t.Context(), two, &accounts, byKey, rowlock.SkipLocked()); err != nil || len(accounts) != 2 {
		t.Errorf("LockRows = %+v, %v; want the two that are free", accounts, err)
	}
	none := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("id > 100") }
	if err := rowlock.LockRows(t.Context(), two, &accounts, none); err != nil || len(accounts) != 0 {
		t.Errorf("LockRows = %+v, %v; want none and no error", accounts, err)
	}
	if _, err := two.ExecContext(t.Context(), aborting); err == nil {
		t.Fatal("no error")
	}
	accounts = []rowAccount{{ID: 1}, {ID: 2}}
	if err := rowlock.LockRows(t.Context(), two, &accounts, byKey); !errors.Is(err, locks.ErrInvalid) || len(accounts) != 2 {
		t.Errorf("LockRows in an aborted transaction = %v with %d rows, want invalid with the two", err, len(accounts))
	}
}
