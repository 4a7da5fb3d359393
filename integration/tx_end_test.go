package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/proxy"
	"github.com/rowlease/rowlease/locks"
)

// A lease acquired in a transaction that the database refuses at its commit is lost, and the handle says so.
func TestACommitThatFails(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		exec(t, r.db, "CREATE TABLE parents (id int PRIMARY KEY)")
		exec(t, r.db, "CREATE TABLE children (id int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
		locker, err := locks.New(r.store)
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		var lease *locks.Lease
		for name, fn := range map[string]func(ctx context.Context, tx *bunstore.Tx) error{
			"a deferred constraint": func(ctx context.Context, tx *bunstore.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO children VALUES (1)")
				return err
			},
			"an error that was swallowed": func(ctx context.Context, tx *bunstore.Tx) error {
				_, _ = tx.ExecContext(ctx, "SELECT 1/0") // pgdriver's commit of it says nil
				return nil
			},
		} {
			err := r.store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) (err error) {
				if lease, err = locker.TryAcquireTx(ctx, tx, "job:42"); err != nil {
					return err
				}
				return fn(ctx, tx)
			})
			if err == nil || bunstore.Retryable(err) {
				t.Errorf("%s: RunInTx = %v, want the database's refusal", name, err)
			}
			if lost := lease.Err(); !errors.Is(lost, locks.ErrNotHeld) || !errors.Is(lost, locks.ErrRolledBack) {
				t.Errorf("%s: the lease says %v, want not held, since it was rolled back", name, lost)
			}
			if _, err := r.rival.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
				t.Errorf("%s: Get = %v, want ErrNotFound", name, err)
			}
		}
	})
}

// A commit whose answer is missing is reported as such, within the call limit, and is not run again. The network keeps
// the answer, or the request: in the first case the server has committed, in the second it never does.
func TestACommitWithoutAnAnswer(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		direct := open(t, driver, dsn)
		exec(t, direct, "CREATE TABLE notes (text text)")
		for name, c := range map[string]struct {
			hold func(*proxy.Proxy, bool)
			rows int
		}{"reply": {(*proxy.Proxy).HoldReplies, 1}, "request": {(*proxy.Proxy).HoldRequests, 0}} {
			p, proxied := through(t, dsn)
			store := newStore(t, open(t, driver, proxied), bunstore.WithCallLimit(500*time.Millisecond))
			exec(t, direct, "TRUNCATE notes")
			var runs int
			var outcome locks.Outcome
			var err error
			// The limit is the begin's too, which can exceed it on a slow machine, and most easily where it has to connect.
			eventually(t, "a connection is in the pool", func() bool {
				return store.InTx(t.Context(), func(context.Context, locks.Tx) error { return nil }) == nil
			})
			eventually(t, "a transaction comes to its commit", func() bool {
				held := false
				runs, outcome = 0, 0
				// Its context outlives the call limit: what ends the wait is the store's own limit.
				err = store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
					runs++
					tx.OnEnd(func(o locks.Outcome) { outcome = o })
					if _, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES ('x')"); err != nil {
						return err
					}
					c.hold(p, true)
					held = true
					return nil
				})
				return held
			})
			if !errors.Is(err, context.DeadlineExceeded) || outcome != locks.Unknown || runs != 1 {
				t.Errorf("%s held: %v, told %v after %d runs, want DeadlineExceeded and unknown after 1", name, err, outcome, runs)
			}
			if c.rows == 1 { // the request is on its way, through a server that may be slow
				eventually(t, "the row is committed", func() bool { return scan[int](t, direct, "SELECT count(*) FROM notes") == 1 })
			}
			p.Cut()
			c.hold(p, false)
			// Whatever the server had of the transaction has ended by now, one way or the other.
			eventually(t, "no other session is in a transaction", func() bool {
				return scan[int](t, direct, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`) == 0
			})
			if got := scan[int](t, direct, "SELECT count(*) FROM notes"); got != c.rows {
				t.Errorf("%s held: %d rows were written, want %d", name, got, c.rows)
			}
		}
	})
}
