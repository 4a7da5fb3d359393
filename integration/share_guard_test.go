package integration_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// Beside an open guard of a share the others of its group come, renew and go, and none of them waits; when all of them have
// gone, nobody holds the resource alone until the transaction ends.
func TestAGroupOfSharesGoesOnBesideAGuard(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		for _, isolation := range isolations {
			for _, slots := range []int{locks.Shared, 3} {
				what := fmt.Sprintf("%s, slots %d: ", isolation, slots)
				a := r.share(t, "a", slots)
				tx, handle := r.begin(t, isolation)
				if err := handle.Guard(t.Context(), a.Grant()); err != nil {
					t.Fatal(err)
				}
				var b locks.Lock
				do := func(name string, call func() error) {
					t.Helper()
					if err := notWaiting(t, r.rivalDB, what+name, call); err != nil {
						t.Errorf("%s%s: %v", what, name, err)
					}
				}
				for range 2 {
					do("join", func() error { b = r.share(t, "b", slots); return nil })
					do("another grant in place", func() error { b = r.share(t, "b", slots); return nil })
					do("renew", func() error { _, err := r.rival.Renew(t.Context(), a.Grant(), time.Hour); return err })
					do("renew to an earlier end", func() error { _, err := r.rival.Renew(t.Context(), a.Grant(), time.Minute); return err })
					do("release", func() error { return r.rival.Release(t.Context(), b.Grant()) })
				}
				alone := func() error {
					_, err := r.rival.Acquire(t.Context(), r.request("doc", "c"))
					return err
				}
				if err := alone(); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("%salone beside a guarded share: %v, want ErrHeld", what, err)
				}
				// The end of the last one, in all the ways in which its group's row can be by then.
				do("join", func() error { b = r.share(t, "b", slots); return nil })
				expireShare(t, r.rivalDB, "a")
				do("release of the last live one", func() error { return r.rival.Release(t.Context(), b.Grant()) })
				for range 2 {
					if err := alone(); !errors.Is(err, locks.ErrHeld) {
						t.Errorf("%salone beside a guarded share that is over: %v, want ErrHeld", what, err)
					}
					_, err := r.rival.Acquire(t.Context(), shareRequest("doc", "d", locks.Shared))
					if !errors.Is(err, locks.ErrHeld) {
						t.Errorf("%sin a new group beside a guarded share that is over: %v, want ErrHeld", what, err)
					}
					exec(t, r.rivalDB, "DELETE FROM distributed_locks WHERE id = (SELECT id FROM distributed_locks FOR UPDATE SKIP LOCKED)")
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				handle.End(locks.Committed)
				do("alone after the commit", alone)
				do("its release", func() error {
					return r.rival.Release(t.Context(), locks.Grant{Resource: "doc", Owner: "c", Token: locks.AnyToken})
				})
			}
		}
	})
}

// A semaphore whose shares have ended by the thousand, unpurged, still gives its slots away, one lock at a time; those that are
// guarded keep theirs, also the last one of them.
func TestSlotsOfEndedSharesAreGivenAwayOneByOne(t *testing.T) {
	t.Parallel()
	r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
	const slots = locks.MaxSlots
	first := r.share(t, "first", slots)
	exec(t, r.rivalDB, `INSERT INTO distributed_lock_shares (resource, owner, lease, token, attempt, acquired_at, expires_at)
		SELECT 'doc', 'ended ' || i, l.token, nextval('distributed_locks_token_seq'), 'x', clock_timestamp(), clock_timestamp()
		FROM distributed_locks AS l, generate_series(1, ?) AS i`, slots-1)
	guarded := r.share(t, "guarded", slots)
	if n := scan[int](t, r.rivalDB, "SELECT count(*) FROM distributed_lock_shares WHERE attempt <> ''"); n != slots {
		t.Errorf("%d shares have slots, want %d: one was to be given away", n, slots)
	}
	tx, handle := r.begin(t, sql.LevelReadCommitted)
	if err := handle.Guard(t.Context(), guarded.Grant()); err != nil {
		t.Fatal(err)
	}
	expireShare(t, r.rivalDB, "guarded")
	exec(t, r.rivalDB, "DELETE FROM distributed_lock_shares WHERE owner LIKE 'ended %' AND token % 500 <> 0")
	left := scan[int](t, r.rivalDB, "SELECT count(*) FROM distributed_lock_shares WHERE attempt <> '' AND owner LIKE 'ended %'")
	exec(t, r.rivalDB, `INSERT INTO distributed_lock_shares (resource, owner, lease, token, attempt, acquired_at, expires_at)
		SELECT 'doc', 'live ' || i, l.token, nextval('distributed_locks_token_seq'), 'x', clock_timestamp(), clock_timestamp() + interval '1 hour'
		FROM distributed_locks AS l, generate_series(1, ?) AS i`, slots-2-left)
	for i := range left {
		r.share(t, fmt.Sprint("next ", i), slots)
	}
	_, err := r.rival.Acquire(t.Context(), shareRequest("doc", "one too many", slots))
	if !errors.Is(err, locks.ErrHeld) {
		t.Errorf("one more than there are slots that nobody guards: %v, want ErrHeld", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	handle.End(locks.RolledBack)
	r.share(t, "last", slots)
	_, err = r.rival.Acquire(t.Context(), shareRequest("doc", "one too many", slots))
	if !errors.Is(err, locks.ErrHeld) {
		t.Errorf("one more than there are slots: %v, want ErrHeld", err)
	}
	r.release(t, first)
}
