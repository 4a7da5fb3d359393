package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

var isolations = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// txRig is a store whose transactions a test opens, and a rival on a pool of its own.
type txRig struct {
	db, rivalDB  *bun.DB
	store, rival *bunstore.Store
	attempts     int
}

func newTxRig(t *testing.T, driver, dsn string) *txRig {
	t.Helper()
	r := &txRig{db: open(t, driver, dsn), rivalDB: open(t, driver, dsn)}
	if err := bunstore.Migrate(t.Context(), r.db); err != nil {
		t.Fatal(err)
	}
	r.store = newStore(t, r.db, bunstore.WithGuardLimit(50*time.Millisecond))
	r.rival = newStore(t, r.rivalDB, bunstore.WithGuardLimit(50*time.Millisecond))
	return r
}

func (r *txRig) request(resource, owner string) locks.Request {
	r.attempts++
	return locks.Request{Resource: resource, Owner: owner, Attempt: fmt.Sprint("attempt-", r.attempts), TTL: time.Hour}
}

func (r *txRig) acquire(t *testing.T, store locks.Store, resource, owner string) locks.Lock {
	t.Helper()
	lock, err := store.Acquire(t.Context(), r.request(resource, owner))
	if err != nil {
		t.Fatalf("Acquire(%q): %v", resource, err)
	}
	return lock
}

func (r *txRig) expire(t *testing.T, resource string) {
	t.Helper()
	exec(t, r.rivalDB, "UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE resource = ?", resource)
}

// begin opens a transaction whose snapshot, where its level has one, is taken at once.
func (r *txRig) begin(t *testing.T, isolation sql.IsolationLevel) (bun.Tx, *bunstore.Tx) {
	t.Helper()
	tx, err := r.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: isolation})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM distributed_locks"); err != nil {
		t.Fatal(err)
	}
	handle, err := r.store.Tx(tx)
	if err != nil {
		t.Fatal(err)
	}
	return tx, handle
}

// What a call in a transaction answers when the resource's row has changed since the transaction's snapshot: the present
// under READ COMMITTED; under the others that the snapshot is too old, wherever the present differs from it. The docs
// have this as a table.
func TestTransactionsBySnapshot(t *testing.T) {
	const resource = "account:1"
	for _, c := range []struct {
		name string
		// before and after the snapshot; the grant is what the call in the transaction is for.
		before, after func(t *testing.T, r *txRig) locks.Grant
		// what renew, release and guard answer, under READ COMMITTED and under the levels with a snapshot
		now, past error
		acquire   [2]error // what another owner's acquire answers
		// guardPasses: the snapshot has the grant, and what changed since is only its end.
		guardPasses bool
	}{
		{
			name:    "held all the time",
			before:  func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			acquire: [2]error{locks.ErrHeld, locks.ErrHeld},
		},
		{
			name:    "acquired since",
			after:   func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			past:    locks.ErrStaleSnapshot,
			acquire: [2]error{locks.ErrHeld, locks.ErrStaleSnapshot},
		},
		{
			name: "taken over since, by the grant in question",
			before: func(t *testing.T, r *txRig) locks.Grant {
				lock := r.acquire(t, r.rival, resource, "w0")
				r.expire(t, resource)
				return lock.Grant()
			},
			after:   func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			past:    locks.ErrStaleSnapshot,
			acquire: [2]error{locks.ErrHeld, locks.ErrStaleSnapshot},
		},
		{
			name:   "taken over since, from the grant in question",
			before: func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			after: func(t *testing.T, r *txRig) locks.Grant {
				r.expire(t, resource)
				r.acquire(t, r.rival, resource, "w0")
				return locks.Grant{}
			},
			now: locks.ErrNotOwner, past: locks.ErrStaleSnapshot,
			acquire: [2]error{locks.ErrHeld, locks.ErrHeld},
		},
		{
			name:   "renewed since",
			before: func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			after: func(t *testing.T, r *txRig) locks.Grant {
				if _, err := r.rival.Renew(t.Context(), locks.Grant{Resource: resource, Owner: "w1", Token: locks.AnyToken}, 2*time.Hour); err != nil {
					t.Fatal(err)
				}
				return locks.Grant{}
			},
			past: locks.ErrStaleSnapshot, guardPasses: true,
			acquire: [2]error{locks.ErrHeld, locks.ErrHeld},
		},
		{
			name:   "released since",
			before: func(t *testing.T, r *txRig) locks.Grant { return r.acquire(t, r.rival, resource, "w1").Grant() },
			after: func(t *testing.T, r *txRig) locks.Grant {
				if err := r.rival.Release(t.Context(), locks.Grant{Resource: resource, Owner: "w1", Token: locks.AnyToken}); err != nil {
					t.Fatal(err)
				}
				return locks.Grant{}
			},
			now: locks.ErrNotHeld, past: locks.ErrStaleSnapshot,
			acquire: [2]error{nil, locks.ErrHeld},
		},
		{
			name: "expired before",
			before: func(t *testing.T, r *txRig) locks.Grant {
				grant := r.acquire(t, r.rival, resource, "w1").Grant()
				r.expire(t, resource)
				return grant
			},
			now: locks.ErrExpired, past: locks.ErrExpired,
		},
		{
			name: "released before",
			before: func(t *testing.T, r *txRig) locks.Grant {
				grant := r.acquire(t, r.rival, resource, "w1").Grant()
				if err := r.rival.Release(t.Context(), grant); err != nil {
					t.Fatal(err)
				}
				return grant
			},
			now: locks.ErrNotHeld, past: locks.ErrNotHeld,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
			for _, isolation := range isolations {
				for _, verb := range []string{"acquire", "renew", "release", "guard"} {
					exec(t, r.rivalDB, "DELETE FROM distributed_locks")
					var grant locks.Grant
					if c.before != nil {
						grant = c.before(t, r)
					}
					tx, handle := r.begin(t, isolation)
					if c.after != nil {
						if g := c.after(t, r); g.Token != 0 {
							grant = g
						}
					}
					want, past := c.now, isolation != sql.LevelReadCommitted
					if past {
						want = c.past
					}
					var err error
					switch verb {
					case "acquire":
						want = c.acquire[0]
						if past {
							want = c.acquire[1]
						}
						_, err = handle.Acquire(t.Context(), r.request(resource, "w2"))
					case "renew":
						_, err = handle.Renew(t.Context(), grant, time.Hour)
					case "release":
						err = handle.Release(t.Context(), grant)
					case "guard":
						if c.guardPasses {
							want = nil
						}
						err = handle.Guard(t.Context(), grant)
					}
					what := fmt.Sprintf("%s under %s", verb, isolation)
					if want == nil && err != nil || want != nil && !errors.Is(err, want) {
						t.Errorf("%s: %v, want %v", what, err, want)
					}
					if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil && (verb != "guard" || !past) {
						t.Errorf("%s: the transaction cannot be used any more: %v", what, err)
					}
					if err := tx.Rollback(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					handle.End(locks.RolledBack)
				}
			}
		})
	}
}
