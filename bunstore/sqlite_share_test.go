package bunstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// sqliteShareFaults counts the groups that are not as their shares are, at one instant: more of them than slots, here 3, none,
// or an end that is not that of the last one.
const sqliteShareFaults = `
SELECT count(*) FROM (SELECT l.owner, l.expires_at, l.metadata, max(s.expires_at) AS last, count(s.id) FILTER (WHERE s.expires_at > t.now) AS n
	FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now) AS t
	CROSS JOIN distributed_locks AS l LEFT JOIN distributed_lock_shares AS s ON s.resource = l.resource AND s.lease = l.token
	WHERE l.expires_at > t.now GROUP BY l.id)
WHERE CASE WHEN owner = '' THEN n = 0 OR expires_at <> last OR metadata = '{"slots":3}' AND n > 3 ELSE n > 0 END`

// At every instant a group is what its shares are, whatever two stores do on one file.
func TestSQLiteSharesUnderContention(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	var stores []*bunstore.Store
	for range 2 {
		db := openSQLite(t, file)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, newStore(t, db, bunstore.WithBusyLimit(time.Minute), bunstore.WithCallLimit(time.Minute)))
	}
	over := make(chan struct{})
	watched := make(chan int)
	go func() {
		db, looks := openSQLite(t, file), 0
		defer func() { watched <- looks }()
		for ; ; looks++ {
			select {
			case <-over:
				return
			default:
			}
			var n int
			if err := db.QueryRowContext(t.Context(), sqliteShareFaults).Scan(&n); err != nil || n > 0 {
				t.Errorf("%d groups are not as their shares, %v", n, err)
				return
			}
		}
	}()
	var all sync.WaitGroup
	granted := make([]int, 8)
	for n := range granted {
		all.Go(func() {
			for round := range 60 {
				granted[n] += useShare(t, stores[(n+round)%2], fmt.Sprint("w", n), round)
			}
		})
	}
	all.Wait()
	close(over)
	if looks := <-watched; looks == 0 {
		t.Error("nobody looked")
	}
	for n, granted := range granted {
		if granted == 0 {
			t.Errorf("w%d was granted nothing", n)
		}
	}
}

// useShare asks for one of two resources in some way, and does something with what it is granted.
func useShare(t *testing.T, store *bunstore.Store, owner string, round int) (granted int) {
	ctx := t.Context()
	short := func() time.Duration { return locks.MinTTL + rand.N(2*locks.MinTTL) }
	request := locks.Request{Resource: "sem", Owner: owner, Attempt: fmt.Sprint(round), TTL: short(), Slots: 3}
	if rand.N(3) == 0 {
		request.Resource, request.Slots = "doc", locks.Shared
	}
	if rand.N(10) == 0 {
		request.Slots = 0
	}
	lock, err := store.Acquire(ctx, request)
	if err == nil {
		granted = 1
		switch rand.N(6) {
		case 0: // it ends by time
		case 1:
			err = store.ReleaseAttempt(ctx, request.Resource, owner, request.Attempt)
		case 2:
			_, err = store.Renew(ctx, lock.Grant(), short())
		case 3:
			_, err = store.ForceRelease(ctx, lock.Resource, lock.Token)
		case 4:
			if lock, err = store.Get(ctx, lock.Resource); err == nil {
				_, err = store.ForceRelease(ctx, lock.Resource, lock.Token)
			}
		default:
			err = store.Release(ctx, lock.Grant())
		}
	}
	if rand.N(50) == 0 && err == nil {
		_, err = store.Purge(ctx, 100)
	}
	for _, answer := range []error{nil, locks.ErrHeld, locks.ErrSlots, locks.ErrLost, locks.ErrNotFound} {
		if errors.Is(err, answer) {
			return granted
		}
	}
	t.Error(err)
	return granted
}

// Ended shares, and those of groups that have gone, are deleted by a purge once they are over; others stay.
func TestSQLitePurgeOfShares(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, filepath.Join(t.TempDir(), "leases.db"))
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db)
	for _, owner := range []string{"ended", "live"} {
		acquire(t, store, shareOf("doc", owner, 2))
	}
	acquire(t, store, shareOf("gone", "w1", 2))
	execute(t, db, "UPDATE distributed_lock_shares SET expires_at = 0 WHERE owner <> 'live'")
	execute(t, db, "UPDATE distributed_locks SET expires_at = 0 WHERE resource = 'gone'")
	if _, err := store.Purge(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	var rows string
	if err := db.QueryRowContext(t.Context(), `SELECT group_concat(resource || ' ' || owner, ', ') FROM
		(SELECT resource, owner FROM distributed_lock_shares UNION ALL SELECT resource, owner FROM distributed_locks)`).Scan(&rows); err != nil || rows != "doc live, doc " {
		t.Errorf("rows after a purge: %q, %v, want doc live and its group", rows, err)
	}
}

// Migrations down and up with live shares leave nothing of them, and tokens go on growing, those of shares too.
func TestSQLiteMigrationsWithLiveShares(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, filepath.Join(t.TempDir(), "leases.db"))
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
			share := acquire(t, store, shareOf("doc", fmt.Sprint("w", i), 3))
			if share.Token <= last {
				t.Errorf("token %d after %d", share.Token, last)
			}
			last = share.Token
		}
		execute(t, db, "DELETE FROM distributed_locks_tokens")
		again := shareOf("doc", "w0", 3)
		again.Attempt = "again"
		if share := acquire(t, store, again); share.Token <= last {
			t.Errorf("token %d after %d, the row of tokens being deleted", share.Token, last)
		} else {
			last = share.Token
		}
		if err := bunstore.Rollback(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
}

// What shares cost in statements, and what a lease does beside.
func TestSQLiteSharesInStatements(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, filepath.Join(t.TempDir(), "leases.db"))
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	n := new(statementCount)
	store := newStore(t, db, bunstore.WithQueryHook(n))
	var share locks.Lock
	for _, call := range []struct {
		name string
		do   func(ctx context.Context) error
		want int
	}{
		{"Acquire, the first", func(ctx context.Context) (err error) {
			share, err = store.Acquire(ctx, shareOf("doc", "w1", 2))
			return err
		}, 7},
		{"Acquire, another", func(ctx context.Context) (err error) {
			share, err = store.Acquire(ctx, shareOf("doc", "w2", 2))
			return err
		}, 6},
		{"Acquire, a retry", func(ctx context.Context) error { _, err := store.Acquire(ctx, shareOf("doc", "w2", 2)); return err }, 2},
		{"Acquire, refused", func(ctx context.Context) error {
			if _, err := store.Acquire(ctx, shareOf("doc", "w3", 2)); !errors.Is(err, locks.ErrHeld) {
				return fmt.Errorf("err = %w, want held", err)
			}
			return nil
		}, 1},
		{"Renew", func(ctx context.Context) error { _, err := store.Renew(ctx, share.Grant(), time.Hour); return err }, 5},
		{"Holders", func(ctx context.Context) error { _, err := store.Holders(ctx, "doc", 10); return err }, 1},
		{"Release", func(ctx context.Context) error { return store.Release(ctx, share.Grant()) }, 5},
		{"ReleaseAttempt, the last", func(ctx context.Context) error { return store.ReleaseAttempt(ctx, "doc", "w1", "attempt of w1") }, 5},
	} {
		n.statements = 0
		if err := call.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", call.name, err)
		}
		if n.statements != call.want {
			t.Errorf("%s: %d statements, want %d", call.name, n.statements, call.want)
		}
	}
}

type statementCount struct{ statements int }

func (n *statementCount) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	n.statements++
	return ctx
}

func (*statementCount) AfterQuery(context.Context, *bun.QueryEvent) {}

func shareOf(resource, owner string, slots int) locks.Request {
	r := request(resource, owner)
	r.Slots = slots
	return r
}

func execute(t *testing.T, db *bun.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}
