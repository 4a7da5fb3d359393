package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// shareRequest is a request for a share, each time another attempt.
func shareRequest(resource, owner string, slots int) locks.Request {
	return locks.Request{Resource: resource, Owner: owner, Attempt: fmt.Sprint("attempt ", shareAttempts.Add(1)), TTL: time.Hour, Slots: slots}
}

var shareAttempts atomic.Int64

// notWaiting makes a call, and fails when its session is seen to wait for a lock.
func notWaiting(t *testing.T, db *bun.DB, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Second):
			if waitingForLocks(t, db)() {
				t.Errorf("%s waits for a lock", what)
				return within(t, what, done)
			}
		}
	}
}

// queries are the statements that a store sends.
type queries struct {
	mu  sync.Mutex
	all []*bun.QueryEvent
}

func (q *queries) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, event)
	return ctx
}

func (*queries) AfterQuery(context.Context, *bun.QueryEvent) {}

// take returns the statements since the last call.
func (q *queries) take() []*bun.QueryEvent {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.all
	q.all = nil
	return all
}

// A process that stops with the share gate in its hand has its session ended by the server; until then others wait for the
// gate, and then they get in. Nothing of that stays with the session of one that goes on.
func TestAStoppedProcessLosesTheShareGate(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		sent := new(queries)
		store := newStore(t, db, bunstore.WithQueryHook(sent), bunstore.WithCallLimit(time.Minute))
		acquire(t, store, shareRequest("doc", "w1", locks.Shared))
		gate := sent.take()[1]
		var pid int
		var limit string
		paused, err := open(t, driver, dsn).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer paused.Rollback()
		var set bool
		if err := paused.Tx.QueryRowContext(t.Context(), gate.Query, gate.QueryArgs...).Scan(&set); err != nil {
			t.Fatal(err)
		}
		if err := paused.Tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid(), current_setting('idle_in_transaction_session_timeout')").
			Scan(&pid, &limit); err != nil {
			t.Fatal(err)
		}
		if limit == "0" {
			t.Fatal("the session is never ended")
		}
		for _, call := range []func() error{
			func() error {
				_, err := store.Acquire(t.Context(), shareRequest("doc", "w2", locks.Shared))
				return err
			},
			func() error {
				_, err := store.Renew(t.Context(), locks.Grant{Resource: "doc", Owner: "w1", Token: locks.AnyToken}, time.Minute)
				return err
			},
			func() error {
				return store.Release(t.Context(), locks.Grant{Resource: "doc", Owner: "w1", Token: locks.AnyToken})
			},
		} {
			if err := call(); err != nil {
				t.Error(err)
			}
		}
		if n := scan[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = ?", pid); n != 0 {
			t.Error("the session is still there")
		}

		one := open(t, driver, dsn)
		one.SetMaxOpenConns(1)
		exec(t, one, "SET idle_in_transaction_session_timeout = '17s'; SET synchronous_commit = 'local'")
		pid = scan[int](t, one, "SELECT pg_backend_pid()")
		alone := newStore(t, one)
		share := acquire(t, alone, shareRequest("doc", "w3", locks.Shared))
		if err := alone.Release(t.Context(), share.Grant()); err != nil {
			t.Fatal(err)
		}
		if got := scan[string](t, one, "SELECT current_setting('idle_in_transaction_session_timeout') || ' ' || current_setting('synchronous_commit')"); got != "17s local" {
			t.Errorf("the session is left with %s, want 17s local", got)
		}
		if got := scan[int](t, one, "SELECT pg_backend_pid()"); got != pid {
			t.Error("it was another session")
		}
	})
}

// All that changes a share of the resource is done behind its gate, one after another: a count of them on a snapshot from before
// another's change would let in one too many. What only looks, or guards, does not wait for that.
func TestChangesOfSharesGoThroughTheGate(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		sent := new(queries)
		store := newStore(t, r.db, bunstore.WithQueryHook(sent), bunstore.WithCallLimit(time.Minute))
		shares := map[string]locks.Lock{}
		for _, owner := range []string{"w1", "w2", "w3", "w4", "w5"} {
			shares[owner] = acquire(t, store, locks.Request{Resource: "doc", Owner: owner, Attempt: "of " + owner, TTL: time.Hour, Slots: 6})
		}
		gate := sent.take()[1]
		acquire(t, store, shareRequest("full", "w1", 1))
		paused, err := r.rivalDB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer paused.Rollback()
		if err := paused.Tx.QueryRowContext(t.Context(), gate.Query, gate.QueryArgs...).Scan(new(bool)); err != nil {
			t.Fatal(err)
		}
		if _, err := paused.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			t.Fatal(err)
		}
		calls := []func() error{
			func() error { _, err := store.Acquire(t.Context(), shareRequest("doc", "w6", 6)); return err },
			func() error { _, err := store.Acquire(t.Context(), shareRequest("doc", "w5", 6)); return err },
			func() error { _, err := store.Renew(t.Context(), shares["w1"].Grant(), time.Hour); return err },
			func() error { return store.Release(t.Context(), shares["w2"].Grant()) },
			func() error { return store.ReleaseAttempt(t.Context(), "doc", "w3", "of w3") },
			func() error { _, err := store.ForceRelease(t.Context(), "doc", shares["w4"].Token); return err },
		}
		done := make(chan error, len(calls))
		for _, call := range calls {
			go func() { done <- call() }()
		}
		eventually(t, "all wait for the gate", func() bool {
			return scan[int](t, r.rivalDB, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'`) == len(calls)
		})
		if holders, err := store.Holders(t.Context(), "doc", 10); err != nil || len(holders) != 5 {
			t.Errorf("Holders beside the gate: %d, %v", len(holders), err)
		}
		tx, handle := r.begin(t, isolations[0])
		if err := handle.Guard(t.Context(), shares["w1"].Grant()); err != nil {
			t.Errorf("Guard beside the gate: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		handle.End(locks.Committed)
		if _, err := store.Acquire(t.Context(), shareRequest("full", "w2", 1)); !errors.Is(err, locks.ErrHeld) {
			t.Errorf("another resource beside the gate: %v, want ErrHeld", err)
		}
		acquire(t, store, shareRequest("free", "w2", 1))
		if err := paused.Commit(); err != nil {
			t.Fatal(err)
		}
		for range calls {
			if err := within(t, "who waited goes on", done); err != nil {
				t.Error(err)
			}
		}
	})
}

// No call on a share waits for a transaction of the host's, whatever that has done to the resource: it answers, within the
// guard limit, as it would beside a lease.
func TestSharesDoNotWaitForTransactions(t *testing.T) {
	for _, c := range []struct {
		name string
		// before is what there is, and in what the open transaction does; both return a share, or a grant of nobody.
		before func(t *testing.T, r *txRig) locks.Lock
		in     func(t *testing.T, r *txRig, tx *bunstore.Tx, share locks.Lock)
		// what is answered to an acquire by the holder, and to calls on its share
		again, renew, release, attempt, force error
	}{
		{
			name: "took over the row of an ended group",
			before: func(t *testing.T, r *txRig) locks.Lock {
				share := r.share(t, "w1", 2)
				expireShare(t, r.rivalDB, "w1")
				return share
			},
			in: func(t *testing.T, r *txRig, tx *bunstore.Tx, _ locks.Lock) {
				if _, err := tx.Acquire(t.Context(), r.request("doc", "w9")); err != nil {
					t.Fatal(err)
				}
			},
			again: locks.ErrHeld, renew: locks.ErrExpired, release: locks.ErrExpired, attempt: locks.ErrNotHeld, force: locks.ErrNotFound,
		},
		{
			name:   "guards the share",
			before: func(t *testing.T, r *txRig) locks.Lock { r.share(t, "w2", 2); return r.share(t, "w1", 2) },
			in: func(t *testing.T, _ *txRig, tx *bunstore.Tx, share locks.Lock) {
				if err := tx.Guard(t.Context(), share.Grant()); err != nil {
					t.Fatal(err)
				}
			},
			again: locks.ErrHeld, release: locks.ErrGuarded, attempt: locks.ErrGuarded, force: locks.ErrGuarded,
		},
		{
			name:   "guards another share of the group",
			before: func(t *testing.T, r *txRig) locks.Lock { r.share(t, "w2", 2); return r.share(t, "w1", 2) },
			in: func(t *testing.T, r *txRig, tx *bunstore.Tx, _ locks.Lock) {
				holders, err := r.store.Holders(t.Context(), "doc", 1)
				if err == nil {
					err = tx.Guard(t.Context(), holders[0].Grant())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			attempt: locks.ErrNotHeld, force: locks.ErrLost,
		},
		{
			name: "acquired a resource that has no row",
			in: func(t *testing.T, r *txRig, tx *bunstore.Tx, _ locks.Lock) {
				if _, err := tx.Acquire(t.Context(), r.request("doc", "w9")); err != nil {
					t.Fatal(err)
				}
			},
			again: locks.ErrHeld, renew: locks.ErrNotHeld, release: locks.ErrNotHeld, attempt: locks.ErrNotHeld, force: locks.ErrNotFound,
		},
		{
			name: "released a lease",
			in: func(t *testing.T, r *txRig, tx *bunstore.Tx, _ locks.Lock) {
				lock, err := tx.Acquire(t.Context(), r.request("doc", "w9"))
				if err == nil {
					err = tx.Release(t.Context(), lock.Grant())
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			again: locks.ErrHeld, renew: locks.ErrNotHeld, release: locks.ErrNotHeld, attempt: locks.ErrNotHeld, force: locks.ErrNotFound,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for driver := range drivers {
				r := newTxRig(t, driver, postgres.Shared(t).Database(t))
				r.rival = newStore(t, r.rivalDB, bunstore.WithGuardLimit(50*time.Millisecond), bunstore.WithCallLimit(time.Minute))
				for _, isolation := range isolations {
					exec(t, r.rivalDB, "DELETE FROM distributed_locks")
					share := locks.Lock{Resource: "doc", Owner: "w1", Token: 1}
					if c.before != nil {
						share = c.before(t, r)
					}
					attempt := fmt.Sprint("attempt-", r.attempts)
					tx, handle := r.begin(t, isolation)
					c.in(t, r, handle, share)
					acquireShare := func(owner string) func() error {
						return func() error {
							request := r.request("doc", owner)
							request.Slots = 2
							lock, err := r.rival.Acquire(t.Context(), request)
							if err == nil {
								share, attempt = lock, request.Attempt
							}
							return err
						}
					}
					for _, call := range []struct {
						name string
						want error
						do   func() error
					}{
						{"Acquire by another", locks.ErrHeld, acquireShare("w3")},
						{"Acquire by itself", c.again, acquireShare("w1")},
						{"Renew", c.renew, func() error { _, err := r.rival.Renew(t.Context(), share.Grant(), time.Minute); return err }},
						{"Release", c.release, func() error { return r.rival.Release(t.Context(), share.Grant()) }},
						{"ReleaseAttempt", c.attempt, func() error { return r.rival.ReleaseAttempt(t.Context(), "doc", "w1", attempt) }},
						{"ForceRelease", c.force, func() error { _, err := r.rival.ForceRelease(t.Context(), "doc", share.Token); return err }},
					} {
						what := fmt.Sprintf("%s, %s: %s", driver, isolation, call.name)
						err := notWaiting(t, r.rivalDB, what, call.do)
						if call.want == nil && err != nil || call.want != nil && !errors.Is(err, call.want) {
							t.Errorf("%s: %v, want %v", what, err, call.want)
						}
					}
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
					handle.End(locks.RolledBack)
				}
			}
		})
	}
}
