package bunstore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

func newRequest(resource, owner string) locks.Request {
	return locks.Request{Resource: resource, Owner: owner, Attempt: owner + "'s", TTL: time.Hour}
}

// wantInvalid says that err is ErrInvalid for the field.
func wantInvalid(t *testing.T, what string, err error, field string) {
	t.Helper()
	var invalid *locks.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != field {
		t.Errorf("%s: %v, want an *InvalidError for %q", what, err, field)
	}
}

// What is no transaction is refused before the database is asked; nothing is changed.
func TestTxRefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db)
	var noTx *bun.Tx
	for name, handle := range map[string]bun.IDB{
		"nil": nil, "*bun.DB": db, "a zero Tx": bun.Tx{}, "a nil *Tx": noTx, "a zero Conn": bun.Conn{},
	} {
		_, err := store.Tx(handle)
		wantInvalid(t, name, err, "transaction")
	}

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tx, err := store.Tx(conn)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tx.Acquire(t.Context(), newRequest("job:42", "w1"))
	wantInvalid(t, "a Conn without a transaction", err, "transaction")
	wantInvalid(t, "a Savepoint on it", tx.Savepoint(t.Context(), func(context.Context, *bunstore.Tx) error { return nil }), "transaction")
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
		t.Fatalf("the connection is left in a transaction: %v", err)
	}
	if _, err := tx.Acquire(t.Context(), newRequest("job:42", "w1")); err != nil {
		t.Errorf("on a Conn with one: %v", err)
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("after the rollback: %v, want ErrNotFound", err)
	}
}

// A transaction that is over refuses every call, whether the store was told of its end or not.
func TestTxIsOver(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db)
	for _, told := range []bool{false, true} {
		bunTx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := store.Tx(bunTx)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := tx.Acquire(t.Context(), newRequest("job:42", "w1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := bunTx.Commit(); err != nil {
			t.Fatal(err)
		}
		if told {
			tx.End(locks.Committed)
		}
		_, err = tx.Acquire(t.Context(), newRequest("job:43", "w1"))
		wantInvalid(t, "acquire", err, "transaction")
		_, err = tx.Renew(t.Context(), lock.Grant(), time.Hour)
		wantInvalid(t, "renew", err, "transaction")
		wantInvalid(t, "release", tx.Release(t.Context(), lock.Grant()), "transaction")
		wantInvalid(t, "guard", tx.Guard(t.Context(), lock.Grant()), "transaction")
		wantInvalid(t, "savepoint", tx.Savepoint(t.Context(), func(context.Context, *bunstore.Tx) error { return nil }), "transaction")
		if got, err := store.Get(t.Context(), "job:42"); err != nil || got.Token != lock.Token {
			t.Errorf("%+v, %v, want the lease as it was committed", got, err)
		}
		if err := store.Release(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
	}
}

// On a connection the transaction of before may be over, by the host's commit or by a rollback of SQLite's own: nothing
// is done under autocommit then.
func TestTxOnAConnWhoseTransactionIsOver(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	execSQL(t, db, "CREATE TABLE u (a UNIQUE ON CONFLICT ROLLBACK)")
	store := newStore(t, db)
	lock, err := store.Acquire(t.Context(), newRequest("job:42", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"COMMIT", "INSERT INTO u VALUES (1), (1)"} {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx, err := store.Tx(conn)
		if err != nil {
			t.Fatal(err)
		}
		execConn(t, conn, "BEGIN")
		if err := tx.Guard(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
		_, _ = conn.ExecContext(t.Context(), end)
		wantInvalid(t, "guard after "+end, tx.Guard(t.Context(), lock.Grant()), "transaction")
		_, err = tx.Acquire(t.Context(), newRequest("job:43", "w1"))
		wantInvalid(t, "acquire after "+end, err, "transaction")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := store.Get(t.Context(), "job:43"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

// A nil *Tx, which is what TxFrom returns for another store's, is refused and no panic.
func TestTxThatIsNil(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t))
	none := bunstore.TxFrom(nil)
	_, err := none.Acquire(t.Context(), newRequest("job:42", "w1"))
	wantInvalid(t, "Acquire", err, "transaction")
	wantInvalid(t, "Guard", none.Guard(t.Context(), locks.Grant{Resource: "job:42", Owner: "w1", Token: 1}), "transaction")
	wantInvalid(t, "Savepoint", none.Savepoint(t.Context(), func(context.Context, *bunstore.Tx) error { return nil }), "transaction")
	_, err = store.Tx(none)
	wantInvalid(t, "Store.Tx", err, "transaction")
}

// Whoever is told of the end is told, also beside a function of the host's that panics.
func TestTxEndsForEverybody(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t))
	var told []locks.Outcome
	panicked := func() (p any) {
		defer func() { p = recover() }()
		_ = store.InTx(t.Context(), func(_ context.Context, tx locks.Tx) error {
			tx.OnEnd(func(locks.Outcome) { panic("boom") })
			tx.OnEnd(func(o locks.Outcome) { told = append(told, o) })
			return nil
		})
		return nil
	}()
	if panicked != "boom" || len(told) != 1 || told[0] != locks.Committed {
		t.Errorf("panic %v, told %v, want both", panicked, told)
	}
}

// A second call beside one that runs is refused: a transaction is for one goroutine at a time.
func TestTxIsForOneGoroutine(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var tx *bunstore.Tx
	var err error
	inside := 0
	hook := queryHook{before: func() {
		if inside++; inside == 1 {
			_, err = tx.Acquire(context.Background(), newRequest("job:43", "w1"))
		}
	}}
	store := newStore(t, db, bunstore.WithQueryHook(hook))
	if runErr := store.RunInTx(t.Context(), nil, func(ctx context.Context, own *bunstore.Tx) error {
		tx = own
		_, err := own.Acquire(ctx, newRequest("job:42", "w1"))
		return err
	}); runErr != nil {
		t.Fatal(runErr)
	}
	wantInvalid(t, "a call beside another", err, "transaction")
}

type queryHook struct{ before func() }

func (h queryHook) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	h.before()
	return ctx
}
func (queryHook) AfterQuery(context.Context, *bun.QueryEvent) {}

// What SQLite's transactions answer, deferred ones that have read before somebody wrote too. The docs have this as a
// table.
func TestTxOnSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		lock string // how the transaction begins
		// reads before others write; then the others' write is over, or (open) still has the file
		reads, open bool
		want        error // of acquire, renew, release and guard
	}{
		{name: "deferred, and nothing read before", lock: "deferred"},
		{name: "deferred, and others wrote since it read", lock: "deferred", reads: true, want: locks.ErrStaleSnapshot},
		{name: "deferred, while another writes", lock: "deferred", open: true, want: locks.ErrBusy},
		{name: "immediate", lock: "immediate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "leases.db")
			sqldb, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10)&_txlock="+c.lock)
			if err != nil {
				t.Fatal(err)
			}
			db := bun.NewDB(sqldb, sqlitedialect.New())
			t.Cleanup(func() { db.Close() })
			if err := bunstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			other := openSQLite(t, file)
			execSQL(t, other, "CREATE TABLE notes (text TEXT)")
			store := newStore(t, db, bunstore.WithBusyLimit(20*time.Millisecond))
			held, err := newStore(t, other).Acquire(t.Context(), newRequest("job:held", "w1"))
			if err != nil {
				t.Fatal(err)
			}
			for _, verb := range []string{"acquire", "renew", "release", "guard", "acquire what is held"} {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.reads {
					if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM notes"); err != nil {
						t.Fatal(err)
					}
					execSQL(t, other, "INSERT INTO notes VALUES ('x')")
				}
				end := func() {}
				if c.open {
					writer, err := other.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := writer.ExecContext(t.Context(), "INSERT INTO notes VALUES ('y')"); err != nil {
						t.Fatal(err)
					}
					end = func() { _ = writer.Rollback() }
				}
				handle, err := store.Tx(tx)
				if err != nil {
					t.Fatal(err)
				}
				want := c.want
				switch verb {
				case "acquire":
					_, err = handle.Acquire(t.Context(), newRequest("job:free", "w2"))
				case "renew":
					_, err = handle.Renew(t.Context(), held.Grant(), time.Hour)
				case "release":
					err = handle.Release(t.Context(), held.Grant())
				case "guard":
					err = handle.Guard(t.Context(), held.Grant())
				default:
					want = locks.ErrHeld // a read, which waits for nobody
					_, err = handle.Acquire(t.Context(), newRequest("job:held", "w2"))
				}
				if want == nil && err != nil || want != nil && !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", verb, err, want)
				}
				if retry := bunstore.Retryable(err); retry != errors.Is(want, locks.ErrRetryable) {
					t.Errorf("%s: Retryable(%v) = %t", verb, err, retry)
				}
				if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
					t.Errorf("%s: the transaction cannot be used any more: %v", verb, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Error(err)
				}
				handle.End(locks.RolledBack)
				end()
			}
			if got, err := store.Get(t.Context(), "job:held"); err != nil || got.Token != held.Token || got.ExpiresAt != held.ExpiresAt {
				t.Errorf("after the rollbacks: %+v, %v, want %+v", got, err, held)
			}
		})
	}
}

// A savepoint takes away what it did, guards too, and what it kept is kept with its transaction.
func TestTxSavepoint(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t))
	undo := errors.New("undo")
	held, err := store.Acquire(t.Context(), newRequest("job:held", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	note := func(name string) func(locks.Outcome) {
		return func(o locks.Outcome) { told = append(told, name+" "+o.String()) }
	}
	err = store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
		tx.OnEnd(note("transaction"))
		err := tx.Savepoint(ctx, func(ctx context.Context, inner *bunstore.Tx) error {
			inner.OnEnd(note("undone"))
			if err := inner.Guard(ctx, held.Grant()); err != nil {
				return err
			}
			if _, err := inner.Acquire(ctx, newRequest("job:held", "w1")); !errors.Is(err, locks.ErrGuarded) {
				t.Errorf("acquire of what is guarded: %v, want ErrGuarded", err)
			}
			if _, err := inner.Acquire(ctx, newRequest("job:undone", "w1")); err != nil {
				return err
			}
			return undo
		})
		if !errors.Is(err, undo) {
			t.Errorf("Savepoint: %v, want what its function returned", err)
		}
		if err := tx.Savepoint(ctx, func(ctx context.Context, inner *bunstore.Tx) error {
			inner.OnEnd(note("kept"))
			_, err := inner.Acquire(ctx, newRequest("job:kept", "w1"))
			return err
		}); err != nil {
			return err
		}
		if len(told) != 1 {
			t.Errorf("told %q before the transaction's end, want the undone savepoint alone", told)
		}
		request := newRequest("job:held", "w1")
		request.Attempt = "another"
		_, err = tx.Acquire(ctx, request) // the guard is void
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "job:undone"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("what was undone: %v, want ErrNotFound", err)
	}
	if _, err := store.Get(t.Context(), "job:kept"); err != nil {
		t.Errorf("what was kept: %v", err)
	}
	want := []string{"undone rolled back", "transaction committed", "kept committed"}
	if len(told) != 3 || told[0] != want[0] || told[1] != want[1] || told[2] != want[2] {
		t.Errorf("told %q, want %q", told, want)
	}
	panicked := func() (p any) {
		defer func() { p = recover() }()
		_ = store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			return tx.Savepoint(ctx, func(ctx context.Context, inner *bunstore.Tx) error {
				inner.OnEnd(note("panicked"))
				panic("boom")
			})
		})
		return nil
	}()
	err = store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
		return tx.Savepoint(ctx, func(ctx context.Context, _ *bunstore.Tx) error {
			_, err := tx.Acquire(ctx, newRequest("job:outer", "w1")) // what it gets would be gone with the savepoint
			return err
		})
	})
	wantInvalid(t, "the outer Tx in a savepoint", err, "transaction")
	if panicked != "boom" || told[len(told)-1] != "panicked rolled back" {
		t.Errorf("panic %v, told %q, want it to pass, and the savepoint rolled back", panicked, told)
	}
}
