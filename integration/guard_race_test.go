package integration_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// No guard ever passes for a grant that is gone, whatever ends the grant at that instant, under every isolation level:
// when a guard has passed, nobody's release or acquire of the resource succeeds until its transaction ends, nor did one
// before.
func TestGuardRaces(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	rounds, few := 4, 2 // of raceRound races each, by each of two racers
	if stress {
		rounds, few = 840, 40
	}
	dsns := map[string]string{}
	for _, driver := range []string{"pgx", "pgdriver"} {
		dsns[driver] = migrated(t, postgres.Shared(t))
	}
	for _, run := range []struct {
		driver    string
		isolation sql.IsolationLevel
		rounds    int
	}{
		{"pgx", sql.LevelReadCommitted, rounds},
		{"pgx", sql.LevelRepeatableRead, rounds},
		{"pgx", sql.LevelSerializable, rounds},
		{"pgdriver", sql.LevelReadCommitted, few},
		{"pgdriver", sql.LevelRepeatableRead, few},
	} {
		t.Run(run.driver+" "+run.isolation.String(), func(t *testing.T) {
			db := open(t, run.driver, dsns[run.driver])
			db.SetMaxOpenConns(6)
			db.SetMaxIdleConns(6)
			var (
				began  = time.Now()
				racers sync.WaitGroup
				mu     sync.Mutex
				sum    raceTally
			)
			for n := range 2 {
				r := racer{
					tb: t, db: db, isolation: run.isolation, name: fmt.Sprintf("%s %s %d", run.driver, run.isolation, n), holder: newStore(t, db),
					// What it may not release comes back soon.
					rival: newStore(t, db, bunstore.WithGuardLimit(time.Millisecond)),
				}
				racers.Go(func() {
					for round := 0; round < run.rounds && !t.Failed(); round++ {
						if err := r.round(t.Context()); err != nil {
							t.Error(err)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					sum.add(r.raceTally)
				})
			}
			racers.Wait()
			t.Logf("%+v in %v", sum, time.Since(began).Round(10*time.Millisecond))
			if sum.passed == 0 || sum.lost+sum.stale == 0 {
				t.Error("one side has won every race: they were none")
			}
		})
	}
}

// raceRound is how many races one round has: as many resources, whose guards stand in one transaction while they pass.
const raceRound = 20

// raceTally counts how guards ended: passed, or refused.
type raceTally struct{ races, passed, lost, stale, busy int }

func (c *raceTally) add(more raceTally) {
	c.races, c.passed, c.lost, c.stale, c.busy = c.races+more.races, c.passed+more.passed, c.lost+more.lost, c.stale+more.stale, c.busy+more.busy
}

// racer holds leases and guards them, while a rival ends them.
type racer struct {
	raceTally
	tb            testing.TB
	db            *bun.DB
	isolation     sql.IsolationLevel
	name          string
	holder, rival *bunstore.Store
}

// round makes one race for each of fresh leases. The transaction goes on from race to race: under the levels with a
// snapshot that of a later race is old.
func (r *racer) round(ctx context.Context) error {
	grants, err := r.grants(ctx)
	if err != nil {
		return err
	}
	for len(grants) > 0 {
		if grants, err = r.transaction(ctx, grants); err != nil {
			return err
		}
	}
	return nil
}

// transaction makes races until one leaves it without use, and returns the grants that are left.
func (r *racer) transaction(ctx context.Context, grants []locks.Grant) (left []locks.Grant, err error) {
	handle, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: r.isolation})
	if err != nil {
		return nil, err
	}
	defer handle.Rollback() // after the commit it does nothing
	tx, err := r.holder.Tx(handle)
	if err != nil {
		return nil, err
	}
	if mathrand.N(2) == 0 { // a snapshot that is older than the race
		if _, err := tx.ExecContext(ctx, "SELECT FROM distributed_locks LIMIT 1"); err != nil {
			return nil, err
		}
	}
	var guards []passedGuard
	usable := true
	for i := 0; i < len(grants) && usable; i++ {
		var guard *passedGuard
		if guard, usable, err = r.race(ctx, tx, grants[i]); err != nil {
			return nil, err
		}
		if guard != nil {
			guards = append(guards, *guard)
		}
		left = grants[i+1:]
	}
	if !usable {
		return left, nil
	}
	if err := r.current(ctx, guards); err != nil {
		return nil, err
	}
	return left, handle.Commit()
}

// passedGuard is a guard that has passed in a transaction that is still open.
type passedGuard struct {
	grant locks.Grant
	// besideUpdate tells that it ran beside an update of the row that kept its key, as a renewal is one. Where such an update
	// moves the row to another page, PostgreSQL (15.18 at least) forgets a key-share lock that is taken in its midst, so
	// that a purge may remove the row when the lease has ended. The gate still keeps everybody from the resource.
	besideUpdate bool
}

// race runs the guard of a grant beside somebody who ends the grant. Both have answered when it returns, and the
// transaction is still open; guard is nil when it was refused.
func (r *racer) race(ctx context.Context, tx *bunstore.Tx, grant locks.Grant) (guard *passedGuard, usable bool, err error) {
	end := endings[mathrand.N(len(endings))]
	meet := mathrand.N(end.steps+2) - 1 // the step that the guard runs beside; or it runs before all of them, or after
	met := make(chan struct{})
	var once sync.Once
	meeting := func() { once.Do(func() { close(met) }) }
	type result struct {
		ended bool
		err   error
	}
	rival := make(chan result, 1)
	attack := func() {
		defer meeting()
		ended, err := end.run(ctx, r, grant, func(step int) {
			if step == meet {
				meeting()
				spin()
			}
		})
		rival <- result{ended, err}
	}
	var refused error
	if meet < 0 {
		refused = tx.Guard(ctx, grant)
		attack()
	} else {
		go attack()
		<-met
		spin()
		refused = tx.Guard(ctx, grant)
	}
	attacked := <-rival

	r.races++
	switch {
	case refused == nil:
		r.passed++
	case errors.Is(refused, locks.ErrLost):
		r.lost++
	case errors.Is(refused, locks.ErrStaleSnapshot) && r.isolation != sql.LevelReadCommitted:
		r.stale++
	case errors.Is(refused, locks.ErrBusy):
		r.busy++
	default:
		return nil, false, fmt.Errorf("guard beside %s: %w", end.name, refused)
	}
	switch {
	case attacked.err != nil:
		return nil, false, fmt.Errorf("%s beside a guard: %w", end.name, attacked.err)
	case refused == nil && attacked.ended:
		return nil, false, fmt.Errorf("the guard of token %d has passed, and so has %s (met at step %d)", grant.Token, end.name, meet)
	case errors.Is(refused, locks.ErrLost) && !attacked.ended && !end.expires:
		return nil, false, fmt.Errorf("%s was refused (met at step %d), and the guard: %w", end.name, meet, refused)
	}
	if refused == nil {
		guard = &passedGuard{grant, end.expires && meet == 0}
	}
	return guard, !errors.Is(refused, locks.ErrRetryable), nil
}

// current fails unless the row of each guard is there as it was, to somebody who is not in the transaction.
func (r *racer) current(ctx context.Context, guards []passedGuard) error {
	for _, guard := range guards {
		var token int64
		err := r.db.QueryRowContext(ctx, "SELECT token FROM distributed_locks WHERE resource = ?", guard.grant.Resource).Scan(&token)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if !guard.besideUpdate {
				return fmt.Errorf("the row of token %d is gone while its guard stands", guard.grant.Token)
			}
		case err != nil:
			return err
		case token != guard.grant.Token:
			return fmt.Errorf("token %d has the resource while the guard of token %d stands", token, guard.grant.Token)
		}
	}
	return nil
}

// grants makes fresh leases behind the store's back, all in one statement.
func (r *racer) grants(ctx context.Context) ([]locks.Grant, error) {
	rows, err := r.db.QueryContext(ctx, `INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
		SELECT ? || ' ' || i, 'holder', nextval('distributed_locks_token_seq'), 'first', clock_timestamp(), clock_timestamp() + interval '1 hour'
		FROM generate_series(1, ?) AS i
		ON CONFLICT (resource) DO UPDATE SET owner = excluded.owner, token = excluded.token, attempt = excluded.attempt,
			expires_at = excluded.expires_at
		RETURNING resource, token`, r.name, raceRound)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var grants []locks.Grant
	for rows.Next() {
		grant := locks.Grant{Owner: "holder"}
		if err := rows.Scan(&grant.Resource, &grant.Token); err != nil {
			return nil, err
		}
		grants = append(grants, grant)
	}
	return grants, rows.Err()
}

// ending is a way in which a grant ends.
type ending struct {
	name    string
	expires bool // by time too
	steps   int
	// run calls at before each of its steps. It returns true when the grant is ended or the resource is somebody else's.
	run func(ctx context.Context, r *racer, grant locks.Grant, at func(step int)) (bool, error)
}

var endings = []ending{
	{"a release", false, 2, func(ctx context.Context, r *racer, grant locks.Grant, at func(int)) (bool, error) {
		at(0)
		ended, err := succeeded(r.rival.Release(ctx, grant))
		if !ended {
			return false, err
		}
		at(1)
		_, err = r.acquire(ctx, grant.Resource, "rival")
		return true, err
	}},
	{"a force release", false, 2, func(ctx context.Context, r *racer, grant locks.Grant, at func(int)) (bool, error) {
		at(0)
		_, err := r.rival.ForceRelease(ctx, grant.Resource, grant.Token)
		ended, err := succeeded(err)
		if !ended {
			return false, err
		}
		at(1)
		_, err = r.acquire(ctx, grant.Resource, "rival")
		return true, err
	}},
	{"a purge", true, 3, func(ctx context.Context, r *racer, grant locks.Grant, at func(int)) (bool, error) {
		at(0)
		if err := r.expire(ctx, grant); err != nil {
			return false, err
		}
		at(1)
		if _, err := r.rival.Purge(ctx, 1000); err != nil {
			return false, err
		}
		at(2)
		return r.acquire(ctx, grant.Resource, "rival")
	}},
	{"a takeover", true, 2, func(ctx context.Context, r *racer, grant locks.Grant, at func(int)) (bool, error) {
		at(0)
		if err := r.expire(ctx, grant); err != nil {
			return false, err
		}
		at(1)
		return r.acquire(ctx, grant.Resource, "rival")
	}},
	{"a new grant of its owner", false, 1, func(ctx context.Context, r *racer, grant locks.Grant, at func(int)) (bool, error) {
		at(0)
		return r.acquire(ctx, grant.Resource, grant.Owner)
	}},
}

func (r *racer) acquire(ctx context.Context, resource, owner string) (bool, error) {
	_, err := r.rival.Acquire(ctx, locks.Request{Resource: resource, Owner: owner, Attempt: rand.Text(), TTL: time.Hour})
	return succeeded(err)
}

// expire has the lease end by time within half a millisecond.
func (r *racer) expire(ctx context.Context, grant locks.Grant) error {
	_, err := r.db.ExecContext(ctx, `UPDATE distributed_locks SET expires_at = clock_timestamp() + ? * interval '1 microsecond'
		WHERE resource = ? AND token = ?`, mathrand.N(500), grant.Resource, grant.Token)
	return err
}

// succeeded tells an answer from a fault.
func succeeded(err error) (bool, error) {
	for _, answer := range []error{locks.ErrHeld, locks.ErrGuarded, locks.ErrLost, locks.ErrBusy, locks.ErrNotFound} {
		if errors.Is(err, answer) {
			return false, nil
		}
	}
	return err == nil, err
}

// spin spends up to a few dozen microseconds, so that two who start at once meet at all points of their statements.
func spin() {
	for n := mathrand.N(50_000); n > 0; n-- {
		_ = n
	}
}
