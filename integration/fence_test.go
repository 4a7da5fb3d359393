package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

type fencedRecord struct {
	bun.BaseModel `bun:"table:archive.records"`

	ID    int64 `bun:",pk"`
	Value int64
	Seen  string `bun:",nullzero,default:'never'"`
}

// A trigger watches over what the fence promises: it fails any write that takes the token down.
const fencedTable = `CREATE SCHEMA archive;
	CREATE TABLE archive.records (id bigint PRIMARY KEY, value bigint, seen text DEFAULT 'never', fence_token bigint);
	CREATE FUNCTION archive.falls() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.fence_token < OLD.fence_token THEN RAISE 'the token went down from %', OLD.fence_token; END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER falls BEFORE UPDATE ON archive.records FOR EACH ROW EXECUTE FUNCTION archive.falls()`

const fencedRow = "SELECT coalesce(string_agg(value || ' ' || fence_token, ', '), '') FROM archive.records WHERE id = ?"

type fencedWrite func(context.Context, bun.IDB, any, int64, ...fence.Option) error

func isStaleRecord(t *testing.T, name string, err error, token, stored int64) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Table: "archive.records", Token: token, Stored: stored}) {
		t.Errorf("%s: err = %v, want stale with %d stored", name, err, stored)
	}
	if !errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrRetryable) {
		t.Errorf("%s: %v is not ErrLost alone", name, err)
	}
}

func TestFence(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		exec(t, db, fencedTable)
		exec(t, db, "INSERT INTO archive.records (id) VALUES (1)")
		ctx := t.Context()
		for id, write := range map[int64]fencedWrite{1: fence.Update, 2: fence.Upsert} {
			for _, step := range []struct {
				value, token, stale int64
				want                string
			}{{1, 5, 0, "1 5"}, {1, 5, 0, "1 5"}, {2, 5, 0, "2 5"}, {3, 4, 5, "2 5"}, {4, 6, 0, "4 6"}, {5, 5, 6, "4 6"}} {
				err := write(ctx, db, &fencedRecord{ID: id, Value: step.value}, step.token)
				if step.stale == 0 && err != nil {
					t.Errorf("row %d, token %d: %v", id, step.token, err)
				} else if step.stale != 0 {
					isStaleRecord(t, "late", err, step.token, step.stale)
				}
				if got := scan[string](t, db, fencedRow, id); got != step.want {
					t.Errorf("row %d is %q, want %q", id, got, step.want)
				}
			}
		}
		if err := fence.Update(ctx, db, &fencedRecord{ID: 9}, 7); !errors.Is(err, fence.ErrNotFound) {
			t.Errorf("no row: err = %v, want ErrNotFound", err)
		}
		if err := fence.Advance(ctx, db, &fencedRecord{ID: 1, Value: 99}, 7); err != nil {
			t.Errorf("Advance: %v", err)
		}
		isStaleRecord(t, "after Advance", fence.Update(ctx, db, &fencedRecord{ID: 1}, 6, fence.WithSet("value = value + 1")), 6, 7)
		if err := fence.Upsert(ctx, db, &fencedRecord{ID: 2}, 8, fence.WithSet("value = ?TableAlias.value + 1")); err != nil {
			t.Errorf("an expression: %v", err)
		}
		if one, two := scan[string](t, db, fencedRow, 1), scan[string](t, db, fencedRow, 2); one != "4 7" || two != "5 8" {
			t.Errorf("the rows are %q and %q, want 4 7 and 5 8", one, two)
		}

		statement := "UPDATE archive.records SET value = $1, fence_token = $2 WHERE id = 1 AND " + fence.Condition("fence_token", "$2")
		for token, want := range map[int64]int64{6: 0, 7: 1} {
			result, err := db.DB.ExecContext(ctx, statement, 40, token)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := result.RowsAffected(); n != want || err != nil {
				t.Errorf("Condition with token %d: %d rows, %v, want %d", token, n, err, want)
			}
		}

		// What fails at the commit was not written, though its row may have been answered before.
		exec(t, db, `CREATE FUNCTION archive.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
			CREATE CONSTRAINT TRIGGER fails AFTER INSERT OR UPDATE ON archive.records DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (NEW.value = -1) EXECUTE FUNCTION archive.fails()`)
		for id, write := range map[int64]fencedWrite{1: fence.Update, 3: fence.Upsert} {
			if err := write(ctx, db, &fencedRecord{ID: id, Value: -1}, 9); err == nil {
				t.Errorf("row %d: no error though the commit failed", id)
			}
		}

		for id, write := range map[int64]fencedWrite{11: fence.Update, 12: fence.Upsert} {
			raceFence(t, db, id, write)
		}
	})
}

// raceFence writes with tokens 1 to 200 in any order by 16 at once; the table's trigger watches.
func raceFence(t *testing.T, db *bun.DB, id int64, write fencedWrite) {
	t.Helper()
	if id == 11 {
		exec(t, db, "INSERT INTO archive.records (id) VALUES (?)", id)
	}
	tokens := make(chan int64, 200)
	for _, n := range rand.Perm(200) {
		tokens <- int64(n + 1)
	}
	close(tokens)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for token := range tokens {
				err := write(t.Context(), db, &fencedRecord{ID: id, Value: token}, token)
				var stale *fence.StaleError
				if errors.As(err, &stale) && stale.Stored > token && token < 200 {
					continue
				}
				if err != nil {
					t.Errorf("row %d, token %d: %v", id, token, err)
				}
			}
		})
	}
	group.Wait()
	if got := scan[string](t, db, fencedRow, id); got != "200 200" {
		t.Errorf("what stays of row %d is %q, want that of token 200", id, got)
	}
}

// A write that waited for another one is checked against what that one stored: PostgreSQL evaluates the WHERE again
// (EvalPlanQual). The other way round a newer one that waited is written, and a rollback leaves no trace.
func TestFenceChecksAgainAfterItWaited(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	db, waiter := open(t, "pgx", dsn), open(t, "pgx", dsn)
	exec(t, db, fencedTable)
	id := int64(0)
	for _, test := range []struct {
		name        string
		exists      bool
		write       fencedWrite
		open, later int64 // tokens of the open transaction, and of the one that waits for it
		commit      bool
		want        string
	}{
		{"older after newer", true, fence.Update, 7, 5, true, "7 7"},
		{"newer after older", true, fence.Update, 5, 7, true, "7 7"},
		{"same after same", true, fence.Update, 7, 7, true, "7 7"},
		{"older after a rollback", true, fence.Update, 7, 5, false, "5 5"},
		{"upsert, older after newer", true, fence.Upsert, 7, 5, true, "7 7"},
		{"upsert, newer after older", true, fence.Upsert, 5, 7, true, "7 7"},
		{"insert, older after newer", false, fence.Upsert, 7, 5, true, "7 7"},
		{"insert, newer after older", false, fence.Upsert, 5, 7, true, "7 7"},
		{"insert, older after a rollback", false, fence.Upsert, 7, 5, false, "5 5"},
	} {
		id++
		if test.exists {
			exec(t, db, "INSERT INTO archive.records (id) VALUES (?)", id)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.write(t.Context(), tx, &fencedRecord{ID: id, Value: test.open}, test.open); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		done := make(chan error, 1)
		go func() {
			done <- test.write(t.Context(), waiter, &fencedRecord{ID: id, Value: test.later}, test.later)
		}()
		eventually(t, "the second write waits", waitingForLocks(t, db))
		end := tx.Commit
		if !test.commit {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		err = <-done
		if test.commit && test.later < test.open {
			isStaleRecord(t, test.name, err, test.later, test.open)
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := scan[string](t, db, fencedRow, id); got != test.want {
			t.Errorf("%s: the row is %q, want %q", test.name, got, test.want)
		}
	}
}

// A transaction that sees only what was there when it began is not asked about the present: what came since is an error
// worth a new transaction, never a write over it.
func TestFenceUnderSnapshotIsolation(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	exec(t, db, fencedTable)
	ctx := t.Context()
	id := int64(0)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for name, write := range map[string]fencedWrite{"Update": fence.Update, "Upsert": fence.Upsert} {
			id++
			exec(t, db, "INSERT INTO archive.records (id, value, fence_token) VALUES (?, 3, 3)", id)
			for _, token := range []int64{5, 7} {
				tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				if err != nil {
					t.Fatal(err)
				}
				var before int64
				if err := tx.NewRaw("SELECT fence_token FROM archive.records WHERE id = ?", id).Scan(ctx, &before); err != nil {
					t.Fatal(err)
				}
				if err := fence.Update(ctx, db, &fencedRecord{ID: id, Value: 6}, 6); err != nil {
					t.Fatal(err)
				}
				err = write(ctx, tx, &fencedRecord{ID: id, Value: token}, token)
				if !errors.Is(err, locks.ErrSerialization) || !errors.Is(err, locks.ErrRetryable) || errors.Is(err, locks.ErrLost) {
					t.Errorf("%v, %s with token %d after 6: err = %v, want ErrSerialization", level, name, token, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			}
			retry, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			isStaleRecord(t, name+" in a new transaction", write(ctx, retry, &fencedRecord{ID: id, Value: 5}, 5), 5, 6)
			if err := write(ctx, retry, &fencedRecord{ID: id, Value: 7}, 7); err != nil {
				t.Errorf("%v, %s: a refusal left the transaction unusable: %v", level, name, err)
			}
			if err := retry.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := scan[string](t, db, fencedRow, id); got != "7 7" {
				t.Errorf("%v, %s: the row is %q, want 7 7", level, name, got)
			}
		}
	}
}
