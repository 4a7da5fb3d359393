package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// shareFaults is what is wrong with the resource "sem", of 5 slots, at one instant of one snapshot, and the groups that have
// gone while one of their shares had not ended.
const shareFaults = `
WITH t AS MATERIALIZED (SELECT clock_timestamp() AS t), lease AS MATERIALIZED (
	SELECT l.*, (SELECT count(*) FROM distributed_lock_shares AS s WHERE s.resource = l.resource AND s.lease = l.token AND s.expires_at > t) AS n,
		(SELECT max(expires_at) FROM distributed_lock_shares AS s WHERE s.resource = l.resource AND s.lease = l.token) AS last
	FROM t, distributed_locks AS l WHERE l.resource = 'sem' AND l.expires_at > t
)
SELECT
	(SELECT concat_ws(', ', CASE WHEN n > 5 THEN n || ' shares' END,
		CASE WHEN owner = '' AND n = 0 THEN 'a group without shares' END,
		CASE WHEN owner = '' AND expires_at IS DISTINCT FROM last THEN 'it ends at ' || expires_at || ', its last share at ' || last END,
		CASE WHEN owner <> '' AND n > 0 THEN 'shares of a lease' END) FROM lease) AS wrong,
	(SELECT string_agg(DISTINCT s.lease::text, ' ') FROM t, distributed_lock_shares AS s, lease
		WHERE s.resource = 'sem' AND s.expires_at > t AND s.lease <> lease.token) AS gone`

// shareCrowd uses one resource in every way there is.
type shareCrowd struct {
	t      *testing.T
	stores []*bunstore.Store
	dbs    []*bun.DB
	// shared and alone are how many are in a section that a guard keeps.
	shared, alone atomic.Int32
	forced        sync.Map // tokens of what an operator has ended, or tries to

	lone, granted, refused, guarded, renewed, ended, force atomic.Int32
}

// At every instant at most so many have a share as there are slots, and nobody holds the resource beside them: by what is in the
// tables, and by who is in a section that its guard keeps, also when leases end in the midst of it.
func TestSharesUnderContention(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	c := &shareCrowd{t: t}
	for driver := range drivers {
		db := open(t, driver, dsn)
		db.SetMaxOpenConns(20)
		db.SetMaxIdleConns(20)
		c.dbs = append(c.dbs, db)
		c.stores = append(c.stores, newStore(t, db, bunstore.WithCallLimit(time.Minute), bunstore.WithGuardLimit(5*time.Millisecond)))
	}
	rounds := 10
	if stress {
		rounds = 300
	}
	over := make(chan struct{})
	watched := make(chan int)
	go func() { watched <- c.watch(open(t, "pgx", dsn), over) }()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			for round := 0; round < rounds && !t.Failed(); round++ {
				c.round(n, round)
			}
		})
	}
	all.Wait()
	close(over)
	looks := <-watched
	t.Logf("%d looks; granted alone %d, shared %d, refused %d, guarded %d, renewed %d, ended %d, forced %d", looks, c.lone.Load(),
		c.granted.Load(), c.refused.Load(), c.guarded.Load(), c.renewed.Load(), c.ended.Load(), c.force.Load())
	if c.granted.Load() == 0 || c.refused.Load() == 0 || c.guarded.Load() == 0 {
		t.Error("there was no contention")
	}
}

func shortTTL() time.Duration { return locks.MinTTL + rand.N(8*locks.MinTTL) }

func (c *shareCrowd) watch(db *bun.DB, over <-chan struct{}) (looks int) {
	for ; ; looks++ {
		select {
		case <-over:
			return looks
		default:
		}
		var wrong, gone sql.NullString
		if err := db.QueryRowContext(c.t.Context(), shareFaults).Scan(&wrong, &gone); err != nil {
			c.t.Error(err)
			return looks
		}
		if wrong.String != "" {
			c.t.Error(wrong.String)
		}
		for _, token := range strings.Fields(gone.String) {
			if _, forced := c.forced.Load(token); !forced {
				c.t.Errorf("the group %s has gone before its shares", token)
			}
		}
	}
}

func (c *shareCrowd) round(n, round int) {
	ctx, t := c.t.Context(), c.t
	at := rand.N(len(c.stores))
	store := c.stores[at]
	ttl := shortTTL()
	request := locks.Request{Resource: "sem", Owner: fmt.Sprint("w", n), Attempt: fmt.Sprint("attempt ", round), TTL: ttl, Slots: 5}
	alone := rand.N(10) == 0
	if alone {
		request.Slots = 0
	}
	lock, err := store.Acquire(ctx, request)
	switch {
	case err == nil && alone:
		c.lone.Add(1)
	case err == nil:
		c.granted.Add(1)
	case errors.Is(err, locks.ErrHeld) || errors.Is(err, locks.ErrSlots):
		c.refused.Add(1)
		if rand.N(5) == 0 {
			c.end(store)
		}
		return
	default:
		t.Errorf("Acquire: %v", err)
		return
	}
	if rand.N(2) == 0 {
		c.inside(c.dbs[at], store, lock, alone)
	}
	switch rand.N(5) {
	case 0: // it ends by time
	case 1:
		err = store.ReleaseAttempt(ctx, "sem", request.Owner, request.Attempt)
	case 2:
		_, err = store.Renew(ctx, lock.Grant(), shortTTL())
		if err == nil {
			c.renewed.Add(1)
			err = store.Release(ctx, lock.Grant())
		}
	default:
		err = store.Release(ctx, lock.Grant())
	}
	if ok, err := succeeded(err); err != nil {
		t.Errorf("the end of a grant: %v", err)
	} else if ok {
		c.ended.Add(1)
	}
}

// inside guards the lease, for as long as some statements take.
func (c *shareCrowd) inside(db *bun.DB, store *bunstore.Store, lock locks.Lock, alone bool) {
	ctx := c.t.Context()
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolations[rand.N(len(isolations))]})
	if err != nil {
		c.t.Error(err)
		return
	}
	defer tx.Rollback()
	handle, err := store.Tx(tx)
	if err != nil {
		c.t.Error(err)
		return
	}
	if rand.N(2) == 0 { // a snapshot that is older than what comes
		if _, err := tx.ExecContext(ctx, "SELECT FROM distributed_locks LIMIT 1"); err != nil {
			c.t.Error(err)
		}
		if rand.N(2) == 0 {
			_, _ = store.Renew(ctx, lock.Grant(), locks.MinTTL)
		}
	}
	if err := handle.Guard(ctx, lock.Grant()); err != nil {
		if _, err := succeeded(err); err != nil && !errors.Is(err, locks.ErrStaleSnapshot) {
			c.t.Errorf("Guard: %v", err)
		}
		return
	}
	c.guarded.Add(1)
	mine, others := &c.shared, &c.alone
	most := int32(5)
	if alone {
		mine, others, most = others, mine, 1
	}
	if n, m := mine.Add(1), others.Load(); n > most || m > 0 {
		c.t.Errorf("%d with the same kind of lease are in a guarded section at once, and %d with the other", n, m)
	}
	for end, long := time.Now().Add(lock.Remaining), rand.N(3) == 0; ; { // mostly a moment, sometimes past the lease's end
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
			c.t.Error(err)
		}
		if !long || time.Now().After(end) {
			break
		}
	}
	mine.Add(-1)
	if err := tx.Commit(); err != nil && !errors.Is(err, context.Canceled) {
		c.t.Error(err)
	}
	handle.End(locks.Committed)
}

// end ends the group, or one of its shares, or who holds the resource alone.
func (c *shareCrowd) end(store *bunstore.Store) {
	ctx := c.t.Context()
	lock, err := store.Get(ctx, "sem")
	if err == nil && lock.Owner == "" && rand.N(2) == 0 {
		var holders []locks.Lock
		if holders, err = store.Holders(ctx, "sem", 10); err == nil && len(holders) > 0 {
			lock = holders[rand.N(len(holders))]
		}
	}
	if err == nil {
		c.forced.Store(fmt.Sprint(lock.Token), true)
		_, err = store.ForceRelease(ctx, "sem", lock.Token)
	}
	if ok, err := succeeded(err); err != nil {
		c.t.Errorf("ForceRelease: %v", err)
	} else if ok {
		c.force.Add(1)
	}
}

// However close together they come, no more get in than there are slots, also where each takes a slot that has just been left.
func TestSharesAreCountedUnderContention(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		var stores []*bunstore.Store
		for i := range 2 {
			db := open(t, driver, dsn)
			if i == 0 {
				if err := bunstore.Migrate(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			db.SetMaxOpenConns(10)
			db.SetMaxIdleConns(10)
			stores = append(stores, newStore(t, db, bunstore.WithCallLimit(time.Minute)))
		}
		const slots = 3
		acquire(t, stores[0], shareRequest("sem", "always", slots)) // the group lasts
		var in, granted atomic.Int32
		var all sync.WaitGroup
		for n := range 12 {
			all.Go(func() {
				for round := 0; round < 60 && !t.Failed(); round++ {
					lock, err := stores[n%2].Acquire(t.Context(), shareRequest("sem", fmt.Sprint("w", n), slots))
					if errors.Is(err, locks.ErrHeld) {
						continue
					}
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					granted.Add(1)
					if others := in.Add(1); others > slots-1 {
						t.Errorf("%d have one of %d slots, and one has it always", others, slots)
					}
					in.Add(-1)
					if err := stores[n%2].Release(t.Context(), lock.Grant()); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		all.Wait()
		t.Logf("%d were granted", granted.Load())
	})
}

// Who asks for another number of slots at the same instant is refused, or all the others are.
func TestSharesOfOneNumberOfSlotsWin(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		var stores []*bunstore.Store
		for i := range 2 {
			db := open(t, driver, dsn)
			if i == 0 {
				if err := bunstore.Migrate(t.Context(), db); err != nil {
					t.Fatal(err)
				}
			}
			db.SetMaxOpenConns(10)
			stores = append(stores, newStore(t, db, bunstore.WithCallLimit(time.Minute)))
		}
		for round := range 20 {
			resource := fmt.Sprint("r", round)
			var mu sync.Mutex
			granted := map[int]int{}
			var all sync.WaitGroup
			for n := range 16 {
				all.Go(func() {
					slots := []int{2, 3, locks.Shared, 0}[n%4]
					_, err := stores[n/4%2].Acquire(t.Context(), shareRequest(resource, fmt.Sprint("w", n), slots))
					if err != nil && !errors.Is(err, locks.ErrSlots) && !errors.Is(err, locks.ErrHeld) {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						granted[slots]++
					}
				})
			}
			all.Wait()
			for slots, n := range granted {
				if most := map[int]int{0: 1, locks.Shared: 4, 2: 2, 3: 3}[slots]; n > most {
					t.Errorf("%d shares of %d slots", n, slots)
				}
			}
			if len(granted) != 1 {
				t.Errorf("granted by slots: %v, want one kind", granted)
			}
		}
	})
}
