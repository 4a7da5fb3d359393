package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/locks"
)

// Account is a model of the application.
type Account struct {
	ID      int64 `bun:",pk"`
	Balance int64
}

// Job is a row of the application's queue.
type Job struct {
	ID    int64 `bun:",pk"`
	State string
}

var (
	ctx = context.Background()
	db  *bun.DB // the application's, on PostgreSQL
)

// Withdraw money: two withdrawals of one account run one after the other.
func ExampleLock() {
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		account := Account{ID: 7}
		if err := rowlock.Lock(ctx, tx, &account, rowlock.ForNoKeyUpdate()); err != nil {
			return err
		}
		if account.Balance < 100 {
			return errors.New("not enough money")
		}
		account.Balance -= 100
		_, err := tx.NewUpdate().Model(&account).WherePK().Exec(ctx)
		return err
	})
	switch {
	case errors.Is(err, locks.ErrHeld):
		log.Print("somebody else has the account for longer than we wait: ", err)
	case errors.Is(err, locks.ErrRetryable):
		log.Print("run the transaction again: ", err)
	case errors.Is(err, sql.ErrNoRows):
		log.Print("no such account")
	}
}

// A queue: each worker takes the ten oldest jobs that no other worker has.
func ExampleLockRows() {
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		var jobs []Job
		if err := rowlock.LockRows(ctx, tx, &jobs, oldestReady, rowlock.SkipLocked()); err != nil || len(jobs) == 0 {
			return err
		}
		for i := range jobs {
			fmt.Println("job", jobs[i].ID) // the work: short, since the transaction is open
			jobs[i].State = "done"
		}
		_, err := tx.NewUpdate().Model(&jobs).Column("state").Bulk().Exec(ctx)
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

// What the application and its test share.
func oldestReady(q *bun.SelectQuery) *bun.SelectQuery {
	return q.Where("state = 'ready'").Order("id").Limit(10)
}

// In a test of the application: an index serves the queue's condition, as one on jobs (id) WHERE state = 'ready' does.
func ExampleCheckPlan() {
	_ = func(t *testing.T) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := rowlock.CheckPlan(t.Context(), tx, &[]Job{}, oldestReady, rowlock.SkipLocked()); err != nil {
			t.Error(err) // rowlock: the whole of "jobs" is read to lock rows: no index serves (job.state = 'ready'::text)
		}
	}
}

// SQLite has no row locks, and the error says what to use there.
func ExampleLock_onSQLite() {
	sqldb, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	defer db.Close()
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		return rowlock.Lock(ctx, tx, &Account{ID: 7})
	})
	what, instead, _ := strings.Cut(err.Error(), ". ")
	fmt.Println(errors.Is(err, locks.ErrInvalid), what)
	fmt.Println(instead)
	// Output:
	// true locks: dialect must be PostgreSQL: SQLite has no row locks
	// Begin the transaction with BEGIN IMMEDIATE, which keeps every other writer out, or guard a lease in it
}
