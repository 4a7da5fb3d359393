package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// afterStatement is told of each statement when it has answered.
type afterStatement func(statement string)

func (afterStatement) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (h afterStatement) AfterQuery(_ context.Context, event *bun.QueryEvent) { h(event.Query) }

// Who comes between the statement of a release and its commit is refused, and told when it is committed: a release of a share
// takes longer to commit than that of a lease.
func TestWhoComesBeforeAShareIsReleasedIsTold(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		var place locks.Place
		var store *bunstore.Store
		waiter := shareRequest("doc", "w2", 1)
		hook := afterStatement(func(statement string) {
			if place != nil || !strings.Contains(statement, "DELETE FROM \"distributed_lock_shares\"") {
				return
			}
			var err error
			if place, err = store.Enqueue(t.Context(), waiter, 0); err != nil {
				t.Error(err)
			}
		})
		// Nobody looks meanwhile, so that it is told or never hears.
		store = newStore(t, db, bunstore.WithQueryHook(hook), bunstore.WithPoll(time.Minute, time.Minute))
		first := acquire(t, store, shareRequest("doc", "w1", 1))
		if err := store.Release(t.Context(), first.Grant()); err != nil {
			t.Fatal(err)
		}
		if place == nil {
			t.Fatal("nobody came")
		}
		select {
		case <-place.Turn():
		case <-time.After(10 * time.Second):
			t.Fatal("it was not told")
		}
		acquire(t, store, waiter)
		place.Served()
	})
}

// There may be more ended shares than the server has room for locks.
func TestPurgeOfManyShares(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		exec(t, db, `INSERT INTO distributed_lock_shares (resource, owner, lease, token, attempt, acquired_at, expires_at)
			SELECT 'doc', i::text, 1, i, 'a', 'epoch', 'epoch' FROM generate_series(1, 1500) AS i`)
		store := newStore(t, db)
		for _, left := range []int{500, 0} {
			if _, err := store.Purge(t.Context(), 50_000); err != nil {
				t.Fatal(err)
			}
			if n := scan[int](t, db, "SELECT count(*) FROM distributed_lock_shares"); n != left {
				t.Errorf("%d shares are left, want %d", n, left)
			}
		}
	})
}
