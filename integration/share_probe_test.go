package integration_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// A guard that is refused under an old snapshot inserts the share, to meet the present, and takes that back at once. Nobody waits
// for a process that stops between the two.
func TestSharesDoNotWaitForAProbe(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		sent := new(queries)
		r.store = newStore(t, r.db, bunstore.WithQueryHook(sent))
		other := r.share(t, "w2", 3)
		tx, handle := r.begin(t, sql.LevelRepeatableRead)
		if err := handle.Guard(t.Context(), locks.Grant{Resource: "doc", Owner: "w1", Token: other.Token}); !errors.Is(err, locks.ErrNotOwner) {
			t.Errorf("Guard: %v, want ErrNotOwner", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		handle.End(locks.RolledBack)
		all := sent.take()
		probe := all[len(all)-1]
		if !strings.Contains(probe.Query, `INTO "distributed_lock_shares"`) {
			t.Fatalf("the last statement is no probe: %s", probe.Query)
		}

		for _, isBegun := range []bool{true, false} {
			if !isBegun {
				r.release(t, other)
			}
			paused, err := r.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var open bool
			if err := paused.Tx.QueryRowContext(t.Context(), probe.Query, probe.QueryArgs...).Scan(&open); err != nil || !open {
				t.Fatalf("the probe: %v, %v", open, err)
			}
			request := r.request("doc", "w1")
			request.Slots = 3
			for range 2 {
				if err := notWaiting(t, r.rivalDB, "Acquire", func() error { _, err := r.rival.Acquire(t.Context(), request); return err }); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("Acquire beside a probe: %v, want ErrHeld", err)
				}
			}
			if err := paused.Rollback(); err != nil {
				t.Fatal(err)
			}
			if share := acquire(t, r.rival, request); isBegun {
				r.release(t, share)
			}
		}
	})
}
