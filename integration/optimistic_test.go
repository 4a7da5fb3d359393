package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

type versionedAccount struct {
	bun.BaseModel `bun:"table:bank.accounts"`

	ID      int64  `bun:",pk"`
	Owner   string `bun:",nullzero,default:'nobody'"`
	Balance int64
	Version int64
}

const versionedTable = `CREATE SCHEMA bank;
	CREATE TABLE bank.accounts (id bigint PRIMARY KEY, owner text DEFAULT 'nobody', balance bigint NOT NULL DEFAULT 0, version bigint)`

const versionedRow = "SELECT coalesce(string_agg(balance || ' at ' || version, ', '), 'gone') FROM bank.accounts WHERE id = ?"

func isConflict(t *testing.T, name string, err error, read, current int64) {
	t.Helper()
	var conflict *optimistic.ConflictError
	if !errors.As(err, &conflict) || *conflict != (optimistic.ConflictError{Table: "bank.accounts", Read: read, Current: current}) {
		t.Errorf("%s: err = %v, want a conflict of %d and %d", name, err, read, current)
	}
	if !errors.Is(err, optimistic.ErrConflict) || !errors.Is(err, locks.ErrRetryable) {
		t.Errorf("%s: %v is not a conflict and retryable", name, err)
	}
}

func TestOptimistic(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		exec(t, db, versionedTable)
		exec(t, db, "INSERT INTO bank.accounts (id) VALUES (1), (2)") // version NULL
		ctx := t.Context()

		first, second := versionedAccount{ID: 1, Balance: 10}, versionedAccount{ID: 1, Balance: 20}
		if err := optimistic.Update(ctx, db, &first); err != nil || first.Version != 1 {
			t.Fatalf("Update = %v, version %d", err, first.Version)
		}
		isConflict(t, "Update", optimistic.Update(ctx, db, &second), 0, 1)
		isConflict(t, "Delete", optimistic.Delete(ctx, db, &second), 0, 1)
		if second != (versionedAccount{ID: 1, Balance: 20}) {
			t.Errorf("the struct became %+v", second)
		}
		if got := scan[string](t, db, versionedRow, 1); got != "10 at 1" {
			t.Errorf("the row is %s, want 10 at 1", got)
		}
		if err := optimistic.Delete(ctx, db, &first); err != nil {
			t.Errorf("Delete: %v", err)
		}
		if err := optimistic.Update(ctx, db, &first); !errors.Is(err, optimistic.ErrNotFound) || first.Version != 1 {
			t.Errorf("Update of a row that is gone = %v, version %d, want ErrNotFound", err, first.Version)
		}

		// The column may be narrower than the field.
		exec(t, db, "ALTER TABLE bank.accounts ADD narrow smallint DEFAULT 32767")
		type narrowAccount struct {
			bun.BaseModel `bun:"table:bank.accounts"`
			ID            int64 `bun:",pk"`
			Narrow        int64
		}
		narrow := narrowAccount{ID: 2, Narrow: math.MaxInt16}
		err := optimistic.Update(ctx, db, &narrow, optimistic.WithVersionColumn("narrow"))
		if err == nil || errors.Is(err, locks.ErrRetryable) || narrow.Narrow != math.MaxInt16 {
			t.Errorf("beyond the column's largest: %v, version %d", err, narrow.Narrow)
		}

		countUp(t, db)
	})
}

// countUp adds one to row 2 twenty times by each of eight at once.
func countUp(t *testing.T, db *bun.DB) {
	t.Helper()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				err := optimistic.Retry(t.Context(), func(ctx context.Context) error {
					a := versionedAccount{ID: 2}
					if err := db.NewSelect().Model(&a).WherePK().Scan(ctx); err != nil {
						return err
					}
					a.Balance++
					return optimistic.Update(ctx, db, &a)
				}, optimistic.WithTries(10_000), optimistic.WithBackoff(time.Millisecond, 20*time.Millisecond))
				if err != nil {
					t.Errorf("Retry: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	if got := scan[string](t, db, versionedRow, 2); got != "160 at 160" {
		t.Errorf("the row is %s, want 160 at 160", got)
	}
}

// A write that waited for another one's row lock finds its version.
func TestOptimisticComparesAgainAfterItWaited(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	db, waiter := open(t, "pgx", dsn), open(t, "pgx", dsn)
	exec(t, db, versionedTable)
	ctx := t.Context()
	id := int64(0)
	for _, test := range []struct {
		name   string
		first  func(context.Context, bun.IDB, any, ...optimistic.Option) error
		commit bool
		want   string
	}{
		{"after an update", optimistic.Update, true, "1 at 4"},
		{"after an update that was rolled back", optimistic.Update, false, "2 at 4"},
		{"after a delete", optimistic.Delete, true, "gone"},
		{"after a delete that was rolled back", optimistic.Delete, false, "2 at 4"},
	} {
		id++
		exec(t, db, "INSERT INTO bank.accounts (id, version) VALUES (?, 3)", id)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.first(ctx, tx, &versionedAccount{ID: id, Balance: 1, Version: 3}); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		late := versionedAccount{ID: id, Balance: 2, Version: 3}
		done := make(chan error, 1)
		go func() { done <- optimistic.Update(ctx, waiter, &late) }()
		eventually(t, "the second write waits", waitingForLocks(t, db))
		end := tx.Commit
		if !test.commit {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		err = <-done
		switch {
		case !test.commit && (err != nil || late.Version != 4):
			t.Errorf("%s: %v, version %d", test.name, err, late.Version)
		case test.commit && test.want == "gone" && (!errors.Is(err, optimistic.ErrNotFound) || late.Version != 3):
			t.Errorf("%s: %v, version %d, want ErrNotFound", test.name, err, late.Version)
		case test.commit && test.want != "gone":
			isConflict(t, test.name, err, 3, 4)
		}
		if got := scan[string](t, db, versionedRow, id); got != test.want {
			t.Errorf("%s: the row is %s, want %s", test.name, got, test.want)
		}
	}
}

// With a snapshot from before the other one's commit there is no version to compare with: the transaction is to begin
// anew.
func TestOptimisticUnderSnapshotIsolation(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	exec(t, db, versionedTable)
	id := int64(0)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		id++
		exec(t, db, "INSERT INTO bank.accounts (id, version) VALUES (?, 3)", id)
		tries := 0
		err := optimistic.Retry(t.Context(), func(ctx context.Context) error {
			tries++
			return db.RunInTx(ctx, &sql.TxOptions{Isolation: level}, func(ctx context.Context, tx bun.Tx) error {
				a := versionedAccount{ID: id}
				if err := tx.NewSelect().Model(&a).WherePK().Scan(ctx); err != nil {
					return err
				}
				if tries == 1 { // somebody comes between
					if err := optimistic.Update(ctx, db, &versionedAccount{ID: id, Balance: 100, Version: 3}); err != nil {
						return err
					}
				}
				a.Balance++
				before := a
				err := optimistic.Update(ctx, tx, &a)
				if tries == 1 && (!errors.Is(err, locks.ErrSerialization) || a != before) {
					t.Errorf("%v: err = %v, the struct is %+v, want ErrSerialization and %+v", level, err, a, before)
				}
				return err
			})
		})
		if err != nil || tries != 2 {
			t.Errorf("%v: Retry = %v after %d tries, want nil after 2", level, err, tries)
		}
		if got := scan[string](t, db, versionedRow, id); got != "101 at 5" {
			t.Errorf("%v: the row is %s, want 101 at 5", level, got)
		}

		// A version that the snapshot knows not to be the row's is a conflict, and leaves the transaction usable.
		err = db.RunInTx(t.Context(), &sql.TxOptions{Isolation: level}, func(ctx context.Context, tx bun.Tx) error {
			isConflict(t, level.String(), optimistic.Update(ctx, tx, &versionedAccount{ID: id, Version: 4}), 4, 5)
			return optimistic.Update(ctx, tx, &versionedAccount{ID: id, Balance: 102, Version: 5})
		})
		if err != nil {
			t.Errorf("%v: after a conflict: %v", level, err)
		}
	}
}

// What a SERIALIZABLE transaction has read may be found out to be outdated as late as at its commit: the error is the
// driver's own.
func TestOptimisticRetriesACommit(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		exec(t, db, versionedTable)
		exec(t, db, "INSERT INTO bank.accounts (id, version) VALUES (1, 1), (2, 1)")
		serializable := &sql.TxOptions{Isolation: sql.LevelSerializable}
		// sumInto stores the sum of all balances and one: of two at once neither sees the other's.
		sumInto := func(ctx context.Context, tx bun.Tx, id int64) error {
			a := versionedAccount{ID: id}
			if err := tx.NewSelect().Model(&a).WherePK().Scan(ctx); err != nil {
				return err
			}
			if err := tx.NewRaw("SELECT sum(balance) + 1 FROM bank.accounts").Scan(ctx, &a.Balance); err != nil {
				return err
			}
			return optimistic.Update(ctx, tx, &a)
		}
		tries := 0
		err := optimistic.Retry(t.Context(), func(ctx context.Context) error {
			tries++
			var inside error
			err := db.RunInTx(ctx, serializable, func(ctx context.Context, tx bun.Tx) error {
				if inside = sumInto(ctx, tx, 1); inside != nil || tries > 1 {
					return inside
				}
				inside = db.RunInTx(ctx, serializable, func(ctx context.Context, other bun.Tx) error { return sumInto(ctx, other, 2) })
				return inside
			})
			if tries == 1 && (inside != nil || err == nil || errors.Is(err, locks.ErrRetryable)) {
				t.Errorf("the first try: %v, then %v at the commit, want the driver's own error there alone", inside, err)
			}
			return err
		})
		if err != nil || tries != 2 {
			t.Errorf("Retry = %v after %d tries, want nil after 2", err, tries)
		}
		if one, two := scan[string](t, db, versionedRow, 1), scan[string](t, db, versionedRow, 2); one != "2 at 2" || two != "1 at 2" {
			t.Errorf("the rows are %s and %s, want 2 at 2 and 1 at 2", one, two)
		}
	})
}
