package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// A guard that waited for a transaction which then released the lease leaves no gate behind in its own.
func TestARefusedGuardLeavesNoGate(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	asked := make(chan struct{}, 1000)
	patient := newStore(t, r.db, bunstore.WithGuardLimit(30*time.Second), bunstore.WithCallLimit(40*time.Second),
		bunstore.WithQueryHook(askedHook{asked}))
	grant := r.acquire(t, r.rival, "a", "w1").Grant()
	releaser, releaserTx := r.begin(t, 0)
	if err := releaserTx.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	guarderBun, _ := r.begin(t, 0)
	guarder, err := patient.Tx(guarderBun)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- guarder.Guard(t.Context(), grant) }()
	for range 2 { // the second time: it waits
		select {
		case <-asked:
		case err := <-done:
			t.Fatalf("guard: %v before the release is committed, want it to wait", err)
		case <-time.After(30 * time.Second):
			t.Fatal("the guard neither asks nor answers")
		}
	}
	if err := releaser.Commit(); err != nil {
		t.Fatal(err)
	}
	releaserTx.End(locks.Committed)
	if err := <-done; !errors.Is(err, locks.ErrLost) {
		t.Fatalf("guard: %v, want ErrLost", err)
	}
	if n := scan[int](t, r.rivalDB, advisoryLocks); n != 0 {
		t.Errorf("the refused guard left %d advisory locks behind", n)
	}
	r.acquire(t, r.rival, "a", "w2")
}

// An attempt's own grant that is found again in a transaction is a part of it: nobody else is granted the resource
// meanwhile. One that is only in the transaction's snapshot is not found.
func TestAGrantFoundAgainInATransaction(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	for _, isolation := range isolations {
		exec(t, r.rivalDB, "DELETE FROM distributed_locks")
		request := r.request("a", "w1")
		first, err := r.rival.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		tx, handle := r.begin(t, isolation)
		if lock, err := handle.Acquire(t.Context(), request); err != nil || lock.Token != first.Token {
			t.Errorf("%v: %+v, %v, want the grant %d", isolation, lock, err, first.Token)
		}
		r.expire(t, "a")
		if _, err := r.rival.Acquire(t.Context(), r.request("a", "w2")); !errors.Is(err, locks.ErrHeld) {
			t.Errorf("%v: beside it: %v, want ErrHeld", isolation, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
	exec(t, r.rivalDB, "DELETE FROM distributed_locks")
	request := r.request("a", "w1")
	first, err := r.rival.Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	_, handle := r.begin(t, sql.LevelRepeatableRead)
	if err := r.rival.Release(t.Context(), first.Grant()); err != nil {
		t.Fatal(err)
	}
	if _, err := handle.Acquire(t.Context(), request); !errors.Is(err, locks.ErrStaleSnapshot) {
		t.Errorf("a grant that was released since the snapshot: %v, want ErrStaleSnapshot", err)
	}
}

// A takeover by time since the snapshot: the lease that the snapshot has is over, and what there is now it cannot see.
func TestATakeoverByTimeSinceTheSnapshot(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	request := r.request("a", "w1")
	request.TTL = locks.MinTTL
	if _, err := r.rival.Acquire(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	_, handle := r.begin(t, sql.LevelRepeatableRead)
	eventually(t, "the lease is over", func() bool {
		return scan[bool](t, r.rivalDB, "SELECT expires_at <= clock_timestamp() FROM distributed_locks WHERE resource = 'a'")
	})
	r.acquire(t, r.rival, "a", "w2")
	if _, err := handle.Acquire(t.Context(), r.request("a", "w3")); !errors.Is(err, locks.ErrStaleSnapshot) {
		t.Errorf("acquire after a takeover by time: %v, want ErrStaleSnapshot", err)
	}
}

// What cannot be guarded in: a connection whose transaction is over, and a read-only transaction.
func TestNoTransactionToGuardIn(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	lock := r.acquire(t, r.rival, "a", "w1")
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tx, err := r.store.Tx(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{"BEGIN", "COMMIT"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		if err := tx.Guard(t.Context(), lock.Grant()); errors.Is(err, locks.ErrInvalid) != (statement == "COMMIT") {
			t.Errorf("guard after %s: %v", statement, err)
		}
	}
	err = r.store.RunInTx(t.Context(), &sql.TxOptions{ReadOnly: true}, func(ctx context.Context, tx *bunstore.Tx) error {
		return tx.Guard(ctx, lock.Grant())
	})
	if !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("guard in a read-only transaction: %v, want ErrInvalid", err)
	}
}

// The database's word that a commit was a rollback is one, where the driver passes it on.
func TestOutcomeOfAnAbortedTransaction(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	tx, err := r.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = tx.ExecContext(t.Context(), "SELECT 1/0")
	err = tx.Commit()
	if got := bunstore.OutcomeOf(err); got != locks.RolledBack {
		t.Errorf("OutcomeOf(%v) = %v, want rolled back", err, got)
	}
}

// askedHook tells of each statement.
type askedHook struct{ asked chan<- struct{} }

func (h askedHook) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	h.asked <- struct{}{}
	return ctx
}

func (askedHook) AfterQuery(context.Context, *bun.QueryEvent) {}
