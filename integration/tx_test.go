package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// A try that is refused in a transaction leaves neither the gate nor a row's lock behind, whoever holds it and whether
// or not that is visible, and the transaction goes on.
func TestARefusedTryInATransactionLeavesNoLock(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		r.acquire(t, r.rival, "held", "w1")
		other, otherTx := r.begin(t, 0)
		if _, err := otherTx.Acquire(t.Context(), r.request("pending", "w1")); err != nil {
			t.Fatal(err)
		}
		for _, isolation := range isolations {
			tx, handle := r.begin(t, isolation)
			for _, resource := range []string{"held", "pending"} {
				if _, err := handle.Acquire(t.Context(), r.request(resource, "w2")); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("%s: %v, want ErrHeld", resource, err)
				}
			}
			var left []string
			if err := tx.NewRaw(`SELECT locktype || ' ' || mode FROM pg_locks WHERE pid = pg_backend_pid()
				AND (locktype IN ('advisory', 'tuple') OR mode = 'RowExclusiveLock') AND locktype <> 'virtualxid'`).Scan(t.Context(), &left); err != nil {
				t.Errorf("the transaction cannot be used any more: %v", err)
			}
			if len(left) > 0 {
				t.Errorf("%s: left behind: %q", isolation, left)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
		}
		if err := other.Rollback(); err != nil {
			t.Fatal(err)
		}
		otherTx.End(locks.RolledBack)
		r.acquire(t, r.rival, "pending", "w3")
	})
}

// Two transactions that take two resources in opposite orders do not wait for each other: both are refused, none is a
// deadlock's victim.
func TestTransactionsInOppositeOrders(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	_, one := r.begin(t, 0)
	_, two := r.begin(t, 0)
	for _, c := range []struct {
		tx       *bunstore.Tx
		resource string
		want     error
	}{{one, "a", nil}, {two, "b", nil}, {one, "b", locks.ErrHeld}, {two, "a", locks.ErrHeld}} {
		if _, err := c.tx.Acquire(t.Context(), r.request(c.resource, fmt.Sprintf("%p", c.tx))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.resource, err, c.want)
		}
	}
}

// Two transactions that guard one grant and then both release it do not wait for each other either.
func TestTwoGuardsThatRelease(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	grant := r.acquire(t, r.rival, "a", "w1").Grant()
	oneTx, one := r.begin(t, 0)
	_, two := r.begin(t, 0)
	for _, tx := range []*bunstore.Tx{one, two} {
		if err := tx.Guard(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
	}
	for _, tx := range []*bunstore.Tx{one, two} {
		if err := tx.Release(t.Context(), grant); !errors.Is(err, locks.ErrGuarded) {
			t.Errorf("release beside another's guard: %v, want ErrGuarded", err)
		}
	}
	if err := oneTx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := two.Release(t.Context(), grant); err != nil {
		t.Errorf("release of what only this transaction guards: %v", err)
	}
}

// What PostgreSQL raises in a transaction is recognisable, and tells whether to try again.
func TestErrorsInATransaction(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)

		// An earlier error has aborted the transaction. (pgdriver gives such a connection up at the next error.)
		grant := r.acquire(t, r.rival, "held", "w1").Grant()
		for verb, call := range map[string]func(*bunstore.Tx) error{
			"acquire": func(tx *bunstore.Tx) error { _, err := tx.Acquire(t.Context(), r.request("free", "w1")); return err },
			"renew":   func(tx *bunstore.Tx) error { _, err := tx.Renew(t.Context(), grant, time.Hour); return err },
			"release": func(tx *bunstore.Tx) error { return tx.Release(t.Context(), grant) },
			"guard":   func(tx *bunstore.Tx) error { return tx.Guard(t.Context(), grant) },
		} {
			tx, handle := r.begin(t, 0)
			if _, err := tx.ExecContext(t.Context(), "SELECT 1/0"); err == nil {
				t.Fatal("no error")
			}
			err := call(handle)
			var invalid *locks.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "transaction" {
				t.Errorf("%s in an aborted transaction: %v, want an *InvalidError for the transaction", verb, err)
			}
			_ = tx.Rollback()
		}

		// A lock_timeout of the host's ends the wait for a row that somebody has locked by hand.
		r.acquire(t, r.rival, "locked", "w1")
		r.expire(t, "locked")
		locker, err := r.rivalDB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.ExecContext(t.Context(), "SELECT 1 FROM distributed_locks WHERE resource = 'locked' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		tx, handle := r.begin(t, 0)
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '20ms'"); err != nil {
			t.Fatal(err)
		}
		if _, err := handle.Acquire(t.Context(), r.request("locked", "w2")); !errors.Is(err, locks.ErrBusy) || !bunstore.Retryable(err) {
			t.Errorf("acquire under a lock_timeout: %v, want ErrBusy", err)
		}
		if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("the transaction cannot be used any more: %v", err)
		}
		if err := errors.Join(tx.Rollback(), locker.Rollback()); err != nil {
			t.Error(err)
		}

		// On a connection without a transaction nothing is done.
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if handle, err = r.store.Tx(conn); err != nil {
			t.Fatal(err)
		}
		if err := handle.Guard(t.Context(), grant); !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("guard on a Conn without a transaction: %v, want ErrInvalid", err)
		}
		if _, err := handle.Acquire(t.Context(), r.request("free", "w1")); !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("acquire on a Conn without a transaction: %v, want ErrInvalid", err)
		}
		if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Fatal(err)
		}
		if err := handle.Guard(t.Context(), grant); err != nil {
			t.Errorf("guard on a Conn with a transaction: %v", err)
		}
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}

		// Another database's grant is simply not held here.
		tx, handle = r.begin(t, 0)
		foreign := locks.Grant{Resource: "elsewhere", Owner: "w1", Token: 1 << 50}
		if err := handle.Guard(t.Context(), foreign); !errors.Is(err, locks.ErrNotHeld) {
			t.Errorf("guard of another database's grant: %v, want ErrNotHeld", err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	})
}

// Time goes on in a transaction: a lease that is acquired late in one lasts its whole TTL, and one that ends while it is
// open is seen to.
func TestTimeInATransaction(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	tx, handle := r.begin(t, 0)
	short := r.request("short", "w1")
	short.TTL = 300 * time.Millisecond
	if _, err := r.rival.Acquire(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, err := handle.Acquire(t.Context(), r.request("short", "w2"))
		if err == nil {
			break
		}
		if !errors.Is(err, locks.ErrHeld) || time.Now().After(deadline) {
			t.Fatalf("in one transaction: %v", err)
		}
		if _, err := tx.ExecContext(t.Context(), "SELECT pg_sleep(0.05)"); err != nil {
			t.Fatal(err)
		}
	}
	late, err := handle.Acquire(t.Context(), r.request("late", "w1")) // now() is 300 ms old by now
	if err != nil {
		t.Fatal(err)
	}
	if late.Remaining < 59*time.Minute || late.ExpiresAt.Sub(late.AcquiredAt) != time.Hour {
		t.Errorf("acquired late in a transaction it lasts %v, of which %v are left, want the hour", late.ExpiresAt.Sub(late.AcquiredAt), late.Remaining)
	}
}

// While a transaction has the pool's only connection, a call beside it ends with its context, and calls in it work.
func TestATransactionInAPoolOfOne(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		r.db.SetMaxOpenConns(1)
		err := r.store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			beside, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if _, err := r.store.Acquire(beside, r.request("beside", "w1")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beside the transaction: %v, want DeadlineExceeded", err)
			}
			lock, err := tx.Acquire(ctx, r.request("within", "w1"))
			if err != nil {
				return err
			}
			return tx.Guard(ctx, lock.Grant())
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// contendInTransactions has transactions that only contend, of the two stores in turn.
func contendInTransactions(t *testing.T, stores []*bunstore.Store) {
	t.Helper()
	done := make(chan error)
	for worker := range 4 {
		go func() {
			for round := range 10 {
				err := stores[worker%2].InTx(t.Context(), func(ctx context.Context, tx locks.Tx) error {
					for _, resource := range []string{"one", "contended", fmt.Sprint("own ", worker)} {
						_, err := tx.Acquire(ctx, locks.Request{Resource: resource, Owner: fmt.Sprint("t", worker), Attempt: fmt.Sprint(round), TTL: time.Hour})
						if err != nil && !errors.Is(err, locks.ErrHeld) {
							return err
						}
					}
					return errUndone
				})
				if !errors.Is(err, errUndone) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Errorf("contention in transactions: %v", err)
		}
	}
}

var errUndone = errors.New("undone")
