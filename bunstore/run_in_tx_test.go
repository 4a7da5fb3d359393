package bunstore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// What a new transaction may get over is run again, up to the limit; everything else is not.
func TestRunInTxTries(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t))
	fault := errors.New("no such thing")
	for _, c := range []struct {
		name    string
		err     error
		fails   int
		options []bunstore.RunOption
		tries   int
		want    error
	}{
		{name: "nothing fails", tries: 1},
		{name: "twice busy", err: locks.ErrBusy, fails: 2, tries: 3},
		{name: "stale", err: locks.ErrStaleSnapshot, fails: 1, tries: 2},
		{name: "busy for ever", err: locks.ErrBusy, fails: 1000, tries: bunstore.DefaultTries, want: locks.ErrBusy},
		{name: "one try", err: locks.ErrBusy, fails: 1000, options: []bunstore.RunOption{bunstore.WithTries(1)}, tries: 1, want: locks.ErrBusy},
		{name: "a fault", err: fault, fails: 1000, tries: 1, want: fault},
		{name: "held", err: locks.Held("job:42", nil), fails: 1000, tries: 1, want: locks.ErrHeld},
	} {
		tries := 0
		var outcomes []locks.Outcome
		err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			tries++
			tx.OnEnd(func(o locks.Outcome) { outcomes = append(outcomes, o) })
			if tries <= c.fails {
				return c.err
			}
			return nil
		}, c.options...)
		if !errors.Is(err, c.want) || c.want == nil && err != nil || tries != c.tries {
			t.Errorf("%s: %v after %d tries, want %v after %d", c.name, err, tries, c.want, c.tries)
		}
		if len(outcomes) != tries || (outcomes[tries-1] == locks.Committed) != (err == nil) {
			t.Errorf("%s: told %v for %d tries that ended in %v", c.name, outcomes, tries, err)
		}
	}
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) { // the pool has its connections back
		t.Error(err)
	}
}

func TestRunInTxRefuses(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t))
	fine := func(context.Context, *bunstore.Tx) error { t.Error("it was run"); return nil }
	wantInvalid(t, "no function", store.RunInTx(t.Context(), nil, nil), "function")
	wantInvalid(t, "no function", store.InTx(t.Context(), nil), "function")
	wantInvalid(t, "no tries", store.RunInTx(t.Context(), nil, fine, bunstore.WithTries(0)), "tries")
	wantInvalid(t, "too many tries", store.RunInTx(t.Context(), nil, fine, bunstore.WithTries(101)), "tries")
	wantInvalid(t, "a nil option", store.RunInTx(t.Context(), nil, fine, nil), "option")
	_ = store.InTx(t.Context(), func(_ context.Context, tx locks.Tx) error {
		wantInvalid(t, "a savepoint without a function", bunstore.TxFrom(tx).Savepoint(t.Context(), nil), "function")
		return nil
	})
	wantInvalid(t, "a zero Tx", new(bunstore.Tx).Savepoint(t.Context(), func(context.Context, *bunstore.Tx) error { return nil }), "transaction")
	wantInvalid(t, "read-only", store.RunInTx(t.Context(), &sql.TxOptions{ReadOnly: true}, fine), "transaction")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.RunInTx(ended, nil, fine); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// A context that ends while the function runs undoes the transaction, whatever the function returns, and gives the
// connection back without a transaction on it.
func TestRunInTxWhoseContextEnds(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.SetMaxOpenConns(1)
	store := newStore(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	var outcome locks.Outcome
	err := store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		tx.OnEnd(func(o locks.Outcome) { outcome = o })
		if _, err := tx.Acquire(ctx, newRequest("job:42", "w1")); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || outcome != locks.RolledBack {
		t.Errorf("%v, told %v, want Canceled and a rollback", err, outcome)
	}
	if _, err := store.Acquire(t.Context(), newRequest("job:42", "w2")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// On SQLite it begins as a writer: two that read first and write later wait for each other, and none fails.
func TestRunInTxBeginsAsAWriter(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	execSQL(t, db, "CREATE TABLE counters (n INTEGER)")
	execSQL(t, db, "INSERT INTO counters VALUES (0)")
	store := newStore(t, db, bunstore.WithBusyLimit(time.Minute))
	const workers, rounds = 4, 10
	errs := make(chan error, workers)
	for range workers {
		go func() {
			for range rounds {
				if err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
					var n int
					if err := tx.NewSelect().Table("counters").Column("n").Scan(ctx, &n); err != nil {
						return err
					}
					_, err := tx.NewRaw("UPDATE counters SET n = ?", n+1).Exec(ctx)
					return err
				}, bunstore.WithTries(1)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	var n int
	if err := db.NewSelect().Table("counters").Column("n").Scan(t.Context(), &n); err != nil || n != workers*rounds {
		t.Errorf("counted %d, %v, want %d", n, err, workers*rounds)
	}
}

// The pair as a host uses it: the lease is acquired by the locker, and checked in the transaction that writes.
func TestGuardOfALease(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db)
	locker, err := locks.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	lease, err := locker.TryAcquire(t.Context(), "account:7")
	if err != nil {
		t.Fatal(err)
	}
	write := func() error {
		return store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			return lease.GuardTx(ctx, tx)
		})
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	execSQL(t, db, "UPDATE distributed_locks SET expires_at = 0")
	if _, err := store.Acquire(t.Context(), newRequest("account:7", "w2")); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, locks.ErrNotOwner) {
		t.Errorf("a late write: %v, want ErrNotOwner", err)
	}
	if err := lease.Err(); !errors.Is(err, locks.ErrLost) {
		t.Errorf("the lease afterwards: %v, want ErrLost", err)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Release: %v, want ErrLost", err)
	}
}

// The handle that a function of locks.Locker.TryDoTx is given runs the host's queries.
func TestTxFrom(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db)
	locker, err := locks.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	err = locker.TryDoTx(t.Context(), store, "job:42", func(ctx context.Context, tx locks.Tx, lease *locks.Lease) error {
		var handle bun.IDB = bunstore.TxFrom(tx)
		var owner string
		if err := handle.NewRaw("SELECT owner FROM distributed_locks").Scan(ctx, &owner); err != nil {
			return err
		}
		if owner != lease.Owner() {
			t.Errorf("in the transaction %q holds it, want %q", owner, lease.Owner())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("afterwards: %v, want ErrNotFound", err)
	}
	if bunstore.TxFrom(nil) != nil {
		t.Error("TxFrom(nil) is something")
	}
}

// A transaction within another one, on the only connection: it ends with the call limit, and not never.
func TestRunInTxWithinAnother(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.SetMaxOpenConns(1)
	store := newStore(t, db, bunstore.WithCallLimit(50*time.Millisecond))
	ran := false
	var err error
	for deadline := time.Now().Add(30 * time.Second); !ran && time.Now().Before(deadline); { // the limit is the outer's too
		err = store.RunInTx(t.Context(), nil, func(ctx context.Context, _ *bunstore.Tx) error {
			ran = true
			return store.RunInTx(ctx, nil, func(context.Context, *bunstore.Tx) error { return nil })
		})
	}
	if !ran || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, the outer function ran: %t; want DeadlineExceeded of the inner one", err, ran)
	}
}
