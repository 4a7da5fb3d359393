package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// A purge deletes shares that are over, also those of groups that have gone, and no others: neither a live one nor one that a
// transaction guards past its end, which keeps its slot.
func TestPurgeOfShares(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		rows := func(want string) {
			t.Helper()
			if _, err := r.rival.Purge(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			got := scan[string](t, r.rivalDB, `SELECT coalesce(string_agg(resource || ' ' || owner, ', ' ORDER BY resource, owner), '') FROM
				(SELECT resource, owner FROM distributed_lock_shares UNION ALL SELECT resource, owner FROM distributed_locks) AS r`)
			if got != want {
				t.Errorf("rows after a purge: %q, want %q", got, want)
			}
		}
		for _, isolation := range isolations {
			guarded := r.share(t, "guarded", 3)
			r.share(t, "ended", 3)
			r.share(t, "live", 3)
			acquire(t, r.rival, shareRequest("gone", "w1", locks.Shared))
			group, err := r.rival.Get(t.Context(), "gone")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.rival.ForceRelease(t.Context(), "gone", group.Token); err != nil {
				t.Fatal(err)
			}
			acquire(t, r.rival, shareRequest("over", "w1", 2))
			exec(t, r.rivalDB, "UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE resource = 'over'")
			tx, handle := r.begin(t, isolation)
			if err := handle.Guard(t.Context(), guarded.Grant()); err != nil {
				t.Fatal(err)
			}
			// The shares of groups that have gone stay until their own ends: no one asks for them.
			rows("doc , doc ended, doc guarded, doc live, gone w1, over w1")
			for _, owner := range []string{"guarded", "ended"} {
				expireShare(t, r.rivalDB, owner)
			}
			exec(t, r.rivalDB, "UPDATE distributed_lock_shares SET expires_at = clock_timestamp() WHERE resource <> 'doc'")
			rows("doc , doc guarded, doc live")
			expireShare(t, r.rivalDB, "live")
			rows("doc , doc guarded")
			if _, err := r.rival.Acquire(t.Context(), r.request("doc", "w9")); !errors.Is(err, locks.ErrHeld) {
				t.Errorf("alone beside a guarded share, after a purge: %v, want ErrHeld", err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			handle.End(locks.Committed)
			rows("")
		}
	})
}

// Any name that is valid is one, and what is kept with a share comes back to the byte.
func TestSharesWithStrangeNames(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		requests := strangeRequests()
		requests = requests[len(requests)-26:] // the strange ones, and one that is long
		requests = append(requests, locks.Request{
			Resource: strings.Repeat("🔒", locks.MaxResourceBytes/4), Owner: strings.Repeat("ü", locks.MaxOwnerBytes/2) + "x",
			Attempt: strings.Repeat("%", locks.MaxAttemptBytes), TTL: time.Hour,
			Metadata: json.RawMessage(`{"a":  "` + strings.Repeat("é", (locks.MaxMetadataBytes-10)/2) + `"}`),
		}, locks.Request{
			Resource: `'; DROP TABLE "distributed_lock_shares"; -- \' $1 ?0 {gate}`, Owner: `{"shared":true}`, Attempt: `\`, TTL: time.Hour,
			Metadata: json.RawMessage(`{"slots":3,"b": 1.50e3,"a":null , "a":"\u0041\\"}`),
		})
		for i, request := range requests {
			shares := make([]locks.Lock, 0, 2)
			for _, owner := range []string{request.Owner, "beside"} {
				request.Slots, request.Owner = []int{locks.Shared, 2}[i%2], owner
				share := acquire(t, store, request)
				if share.Resource != request.Resource || share.Owner != owner || !bytes.Equal(share.Metadata, request.Metadata) {
					t.Errorf("%+v was granted as %+v", request, share)
				}
				shares = append(shares, share)
			}
			holders, err := store.Holders(t.Context(), request.Resource, 10)
			if err != nil || len(holders) != 2 {
				t.Fatalf("%q: %d holders, %v", request.Resource, len(holders), err)
			}
			for n, share := range shares {
				share.Remaining, holders[n].Remaining = 0, 0
				if fmt.Sprintf("%+v", holders[n]) != fmt.Sprintf("%+v", share) {
					t.Errorf("the holder is %+v, want %+v", holders[n], share)
				}
				renewed, err := store.Renew(t.Context(), share.Grant(), time.Hour)
				if err != nil || !bytes.Equal(renewed.Metadata, request.Metadata) {
					t.Errorf("Renew of %q: %+v, %v", share.Resource, renewed, err)
				}
			}
			if err := store.Release(t.Context(), shares[0].Grant()); err != nil {
				t.Error(err)
			}
			if err := store.ReleaseAttempt(t.Context(), request.Resource, "beside", request.Attempt); err != nil {
				t.Error(err)
			}
			if _, err := store.Get(t.Context(), request.Resource); !errors.Is(err, locks.ErrNotFound) {
				t.Errorf("%q is not free: %v", request.Resource, err)
			}
		}
	})
}

// Migrations down and up with live shares leave nothing of them, and tokens go on growing.
func TestMigrationsWithLiveShares(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		store := newStore(t, db)
		var last int64
		for range 3 {
			for range 2 {
				if err := bunstore.Migrate(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := store.Get(t.Context(), "doc"); !errors.Is(err, locks.ErrNotFound) {
				t.Errorf("a group has outlived its table: %v", err)
			}
			for i := range 3 {
				share := acquire(t, store, shareRequest("doc", fmt.Sprint("w", i), 3))
				if share.Token <= last {
					t.Errorf("token %d after %d", share.Token, last)
				}
				last = share.Token
			}
			if err := bunstore.Rollback(t.Context(), db); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The migrations before that of shares were enough for leases, and are so for a table that gets shares later, in use.
func TestSharesComeToATableInUse(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		held := acquire(t, store, request("doc", "w1"))
		exec(t, db, "DROP TABLE distributed_lock_shares")
		exec(t, db, "DELETE FROM distributed_locks_migrations WHERE name = (SELECT max(name) FROM distributed_locks_migrations)")
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Acquire(t.Context(), shareRequest("doc", "w2", locks.Shared)); !errors.Is(err, locks.ErrHeld) {
			t.Errorf("a share beside a lease: %v, want ErrHeld", err)
		}
		if err := store.Release(t.Context(), held.Grant()); err != nil {
			t.Error(err)
		}
		if share := acquire(t, store, shareRequest("doc", "w2", locks.Shared)); share.Token <= held.Token {
			t.Errorf("token %d after %d", share.Token, held.Token)
		}
	})
}
