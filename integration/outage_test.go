package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// A server whose default is not to wait for the disk, killed: no token comes again, and no holder is forgotten.
func TestTokensOutliveACrash(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, postgres.Durable(), postgres.Setting("synchronous_commit", "off"), postgres.Setting("wal_writer_delay", "10s"))
	dsn := migrated(t, server)
	last := map[string]locks.Lock{}
	for driver := range drivers {
		store := newStore(t, open(t, driver, dsn))
		for i := range 50 {
			lock := acquire(t, store, request("job "+driver, fmt.Sprint("w", i)))
			if i < 49 {
				if err := store.Release(t.Context(), lock.Grant()); err != nil {
					t.Fatal(err)
				}
			}
			last[driver] = lock
		}
		if _, err := store.Renew(t.Context(), last[driver].Grant(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill(t)
	server.StartAgain(t)
	for driver, lock := range last {
		store := newStore(t, open(t, driver, dsn))
		if got, err := store.Get(t.Context(), lock.Resource); err != nil || got.Token != lock.Token || got.Remaining < 50*time.Minute {
			t.Errorf("%s: after the crash Get = %+v, %v; want the renewed lease with token %d", driver, got, err, lock.Token)
		}
		next := acquire(t, store, request("next "+driver, "w"))
		for _, before := range last {
			if next.Token <= before.Token {
				t.Errorf("%s: token %d after the crash, %d before it", driver, next.Token, before.Token)
			}
		}
	}
}

// unflushed is how many bytes of WAL are not on disk yet.
func unflushed(t *testing.T, db *bun.DB) int64 {
	t.Helper()
	return scan[int64](t, db, "SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()")
}

// What must be on disk when it returns is, whatever the default; a release does not wait for the disk.
func TestWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	for setting, options := range map[string][]postgres.Option{
		"off": {postgres.Durable(), postgres.Setting("wal_writer_delay", "10s"), postgres.Setting("autovacuum", "off"), postgres.Setting("synchronous_commit", "off")},
		"on":  {postgres.Durable(), postgres.Setting("wal_writer_delay", "10s"), postgres.Setting("autovacuum", "off")},
	} {
		db := open(t, "pgx", migrated(t, postgres.Start(t, options...)))
		store := newStore(t, db)
		write := func(what string, call func() error) int64 {
			t.Helper()
			exec(t, db, "CHECKPOINT")
			if err := call(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			return unflushed(t, db)
		}
		var lock locks.Lock
		for what, call := range map[string]func() error{
			"Acquire": func() (err error) { lock, err = store.Acquire(t.Context(), request("job:42", "w1")); return err },
			"Renew": func() (err error) {
				lock = acquire(t, store, request("renewed", "w1"))
				exec(t, db, "CHECKPOINT")
				_, err = store.Renew(t.Context(), lock.Grant(), time.Hour)
				return err
			},
			"ForceRelease": func() (err error) {
				lock = acquire(t, store, request("forced", "w1"))
				exec(t, db, "CHECKPOINT")
				_, err = store.ForceRelease(t.Context(), "forced", lock.Token)
				return err
			},
		} {
			if n := write(what, call); n != 0 {
				t.Errorf("synchronous_commit %s: %d bytes of %s are not on disk", setting, n, what)
			}
		}
		lock = acquire(t, store, request("released", "w1"))
		if n := write("Release", func() error { return store.Release(t.Context(), lock.Grant()) }); n == 0 {
			t.Errorf("synchronous_commit %s: the release waited for the disk", setting)
		}
	}
}

// A server that restarts under live leases costs renewals, not leases.
func TestLeasesOutliveARestart(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	dsn := migrated(t, server)
	for driver := range drivers {
		renewed := make(chan struct{}, 1000)
		observer := locks.ObserverFunc(func(_ context.Context, event locks.Event) {
			if event.Kind == locks.EventRenewed {
				renewed <- struct{}{}
			}
		})
		locker := newLocker(t, open(t, driver, dsn), locks.WithTTL(30*time.Second), locks.WithRenewalInterval(500*time.Millisecond), locks.WithObserver(observer))
		lease, err := locker.TryAcquire(t.Context(), "job "+driver)
		if err != nil {
			t.Fatal(err)
		}
		<-renewed
		server.Restart(t)
		for len(renewed) > 0 {
			<-renewed
		}
		<-renewed
		if err := lease.Err(); err != nil {
			t.Errorf("%s: lease ended: %v", driver, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("%s: Release: %v", driver, err)
		}
	}
}

// Sessions that the server ends while they are idle cost nothing either.
func TestLeasesOutliveIdleSessions(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, postgres.Setting("idle_session_timeout", "200ms"))
	dsn := migrated(t, server)
	for driver := range drivers {
		db := open(t, driver, dsn)
		locker := newLocker(t, db, locks.WithTTL(3*time.Second))
		lease, err := locker.TryAcquire(t.Context(), "job "+driver)
		if err != nil {
			t.Fatal(err)
		}
		first := lease.Deadline()
		eventually(t, "three renewals", func() bool { return lease.Err() != nil || lease.Deadline().Sub(first) > 2500*time.Millisecond })
		if err := lease.Err(); err != nil {
			t.Errorf("%s: lease ended: %v", driver, err)
		}
	}
}

// A transaction has the pool's only connection: an acquire ends with its context, a holder is told in time.
func TestAPoolOfOneIsNoHang(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		locker := newLocker(t, db, locks.WithTTL(2*time.Second))
		start := time.Now()
		lease, err := locker.TryAcquire(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := locker.Acquire(ctx, "job:42"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
			t.Errorf("Acquire = %v, want context.DeadlineExceeded", err)
		}
		<-lease.Context().Done()
		if told := time.Since(start); told > 10*time.Second { // a second, on a machine that does not pause
			t.Errorf("told after %v, want within the TTL", told)
		}
		if !errors.Is(lease.Err(), locks.ErrExpired) {
			t.Errorf("cause = %v, want ErrExpired", lease.Err())
		}
	})
}

// Faults on PostgreSQL are faults: not held, not lost, not "not found".
func TestFaultsAreNotAnswers(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		store := newStore(t, db)
		calls := map[string]func() error{
			"Acquire": func() error { _, err := store.Acquire(t.Context(), request("job:42", "w1")); return err },
			"Get":     func() error { _, err := store.Get(t.Context(), "job:42"); return err },
			"Renew": func() error {
				_, err := store.Renew(t.Context(), locks.Grant{Resource: "job:42", Owner: "w1", Token: 1}, time.Minute)
				return err
			},
			"Release": func() error {
				return store.Release(t.Context(), locks.Grant{Resource: "job:42", Owner: "w1", Token: 1})
			},
			"Purge":        func() error { _, err := store.Purge(t.Context(), 1); return err },
			"List":         func() error { _, err := store.List(t.Context(), locks.ListQuery{}); return err },
			"ForceRelease": func() error { _, err := store.ForceRelease(t.Context(), "job:42", 1); return err },
		}
		for name, call := range calls {
			err := call() // there is no table
			for _, answer := range []error{locks.ErrHeld, locks.ErrLost, locks.ErrNotFound, locks.ErrRetryable} {
				if err == nil || errors.Is(err, answer) {
					t.Errorf("%s without a table = %v", name, err)
				}
			}
		}
	})
}
