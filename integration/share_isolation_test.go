package integration_test

import (
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

// share is request for a share, each time another attempt.
func (r *txRig) share(t *testing.T, owner string, slots int) locks.Lock {
	t.Helper()
	request := r.request("doc", owner)
	request.Slots = slots
	return acquire(t, r.rival, request)
}

func (r *txRig) release(t *testing.T, lock locks.Lock) {
	t.Helper()
	if err := r.rival.Release(t.Context(), lock.Grant()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func (r *txRig) renew(t *testing.T, lock locks.Lock, ttl time.Duration) {
	t.Helper()
	if _, err := r.rival.Renew(t.Context(), lock.Grant(), ttl); err != nil {
		t.Fatalf("Renew: %v", err)
	}
}

// expireShare ends the owner's share, as a renewal to the shortest time and that time would.
func expireShare(t *testing.T, db *bun.DB, owner string) {
	t.Helper()
	exec(t, db, "UPDATE distributed_lock_shares SET expires_at = clock_timestamp() WHERE resource = 'doc' AND owner = ?", owner)
	exec(t, db, `UPDATE distributed_locks AS l SET expires_at = (SELECT max(expires_at) FROM distributed_lock_shares
		WHERE resource = 'doc' AND lease = l.token) WHERE resource = 'doc' AND owner = ''`)
}

// What the guard of a share answers when something has changed since the transaction's snapshot: the present under READ
// COMMITTED, under the others that the snapshot is too old, wherever it would pass or refuse by what is over.
func TestShareGuardsBySnapshot(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after func(t *testing.T, r *txRig, slots int) locks.Lock // the share in question
		now, past     error
	}{
		{
			name:   "held all the time",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
		},
		{
			name:  "the group began since",
			after: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			past:  locks.ErrStaleSnapshot,
		},
		{
			name: "the group began since, in the place of an ended one",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock {
				share := r.share(t, "w1", slots)
				expireShare(t, r.rivalDB, "w1")
				return share
			},
			after: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			past:  locks.ErrStaleSnapshot,
		},
		{
			name: "the group began since, in the place of a lease",
			before: func(t *testing.T, r *txRig, _ int) locks.Lock {
				lock := r.acquire(t, r.rival, "doc", "w9")
				r.expire(t, "doc")
				return lock
			},
			after: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			past:  locks.ErrStaleSnapshot,
		},
		{
			name:   "joined since",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w2", slots) },
			after:  func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			past:   locks.ErrStaleSnapshot,
		},
		{
			name:   "granted anew since, the new one",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after:  func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			past:   locks.ErrStaleSnapshot,
		},
		{
			name:   "granted anew since, the old one",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, slots int) locks.Lock {
				r.share(t, "w1", slots)
				return locks.Lock{}
			},
			now: locks.ErrSuperseded, past: locks.ErrStaleSnapshot,
		},
		{
			name:   "renewed since",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, _ int) locks.Lock {
				r.renew(t, locks.Lock{Resource: "doc", Owner: "w1", Token: locks.AnyToken}, 2*time.Hour)
				return locks.Lock{}
			},
		},
		{
			name:   "others have joined, renewed, left and come again since",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, slots int) locks.Lock {
				other := r.share(t, "w2", slots)
				r.renew(t, other, 2*time.Hour)
				r.renew(t, other, time.Minute)
				r.release(t, other)
				r.share(t, "w3", slots)
				return locks.Lock{}
			},
		},
		{
			name: "released since, its group stays",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock {
				r.share(t, "w2", slots)
				return r.share(t, "w1", slots)
			},
			after: func(t *testing.T, r *txRig, _ int) locks.Lock {
				r.release(t, locks.Lock{Resource: "doc", Owner: "w1", Token: locks.AnyToken})
				return locks.Lock{}
			},
			now: locks.ErrNotOwner, past: locks.ErrStaleSnapshot,
		},
		{
			name:   "released since, as the last of its group",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, _ int) locks.Lock {
				r.release(t, locks.Lock{Resource: "doc", Owner: "w1", Token: locks.AnyToken})
				return locks.Lock{}
			},
			now: locks.ErrNotHeld, past: locks.ErrStaleSnapshot,
		},
		{
			name:   "its group was ended since",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, _ int) locks.Lock {
				group, err := r.rival.Get(t.Context(), "doc")
				if err == nil {
					_, err = r.rival.ForceRelease(t.Context(), "doc", group.Token)
				}
				if err != nil {
					t.Fatal(err)
				}
				return locks.Lock{}
			},
			now: locks.ErrNotHeld, past: locks.ErrStaleSnapshot,
		},
		{
			name:   "ended early since, and somebody holds it alone",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock { return r.share(t, "w1", slots) },
			after: func(t *testing.T, r *txRig, _ int) locks.Lock {
				expireShare(t, r.rivalDB, "w1")
				r.acquire(t, r.rival, "doc", "w9")
				return locks.Lock{}
			},
			now: locks.ErrNotOwner, past: locks.ErrStaleSnapshot,
		},
		{
			name: "ended early since, and somebody has its slot",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock {
				r.share(t, "w2", slots)
				return r.share(t, "w1", slots)
			},
			after: func(t *testing.T, r *txRig, slots int) locks.Lock {
				if slots == locks.Shared { // has none, and so the end is never given to anybody
					r.release(t, locks.Lock{Resource: "doc", Owner: "w1", Token: locks.AnyToken})
					return locks.Lock{}
				}
				expireShare(t, r.rivalDB, "w1")
				r.share(t, "w3", slots)
				return locks.Lock{}
			},
			now: locks.ErrLost, past: locks.ErrStaleSnapshot,
		},
		{
			name: "released before",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock {
				r.share(t, "w2", slots)
				share := r.share(t, "w1", slots)
				r.release(t, share)
				return share
			},
			now: locks.ErrNotOwner, past: locks.ErrNotOwner,
		},
		{
			name: "over before",
			before: func(t *testing.T, r *txRig, slots int) locks.Lock {
				r.share(t, "w2", slots)
				share := r.share(t, "w1", slots)
				expireShare(t, r.rivalDB, "w1")
				return share
			},
			now: locks.ErrExpired, past: locks.ErrExpired,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newTxRig(t, "pgx", postgres.Shared(t).Database(t))
			for _, isolation := range isolations {
				for _, slots := range []int{locks.Shared, 2} {
					exec(t, r.rivalDB, "DELETE FROM distributed_locks")
					exec(t, r.rivalDB, "DELETE FROM distributed_lock_shares")
					var share locks.Lock
					if c.before != nil {
						share = c.before(t, r, slots)
					}
					tx, handle := r.begin(t, isolation)
					if c.after != nil {
						if s := c.after(t, r, slots); s.Token != 0 {
							share = s
						}
					}
					wantGuard(t, fmt.Sprintf("%s, slots %d", isolation, slots), r, tx, handle, share, isolation, c.now, c.past)
				}
			}
		})
	}
}

// wantGuard guards the share, and ends the transaction.
func wantGuard(
	t *testing.T, what string, r *txRig, tx bun.Tx, handle *bunstore.Tx, share locks.Lock, isolation sql.IsolationLevel, now, past error,
) {
	t.Helper()
	want := now
	if isolation != sql.LevelReadCommitted {
		want = past
	}
	err := handle.Guard(t.Context(), share.Grant())
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if errors.Is(want, locks.ErrStaleSnapshot) && errors.Is(err, locks.ErrLost) {
		t.Errorf("%s: %v is lost too", what, err)
	}
	if err == nil {
		if err := r.rival.Release(t.Context(), share.Grant()); !errors.Is(err, locks.ErrGuarded) {
			t.Errorf("%s: a release beside the guard: %v, want ErrGuarded", what, err)
		}
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil && !errors.Is(want, locks.ErrStaleSnapshot) {
		t.Errorf("%s: the transaction cannot be used any more: %v", what, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	handle.End(locks.RolledBack)
}
