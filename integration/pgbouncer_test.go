package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/integration/internal/pgbouncer"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// A pooler that gives each transaction whichever backend is free: leases and locks of a transaction work through it, in
// the modes that the documentation names; session locks find it and refuse.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	server := postgres.Shared(t)
	bouncer := pgbouncer.Start(t, server, 4)
	for _, name := range []string{"pgdriver", "pgx", "pgx cache_describe", "pgx exec", "pgx simple_protocol"} {
		t.Run(name, func(t *testing.T) {
			direct := migrated(t, server)
			handle := handles[name]
			dsn := withParameters(bouncer.DSN(t, direct), handle.parameters)
			store := newStore(t, open(t, handle.driver, dsn), bunstore.WithCallLimit(time.Minute))
			locker := advisoryLocker(t, open(t, handle.driver, dsn))

			if err := locker.Check(t.Context()); !errors.Is(err, advisory.ErrPooler) {
				t.Errorf("Check of the locker: %v, want ErrPooler", err)
			}
			for _, lock := range []func(context.Context, string, ...advisory.Option) (*advisory.Session, error){locker.TryLock, locker.Lock} {
				if _, err := lock(t.Context(), "a"); !errors.Is(err, advisory.ErrPooler) {
					t.Errorf("a session lock: %v, want ErrPooler", err)
				}
			}
			report, err := store.Check(t.Context())
			warned := slices.ContainsFunc(report.Warnings, func(s string) bool { return strings.Contains(s, "pooler in transaction mode") })
			var found *bunstore.CheckError
			refused := errors.As(err, &found) && strings.Contains(found.Error(), "prepared statements get lost")
			if name == "pgx" {
				if !warned && !refused {
					t.Errorf("Check = %+v, %v; want it to speak of the pooler", report, err)
				}
				eventually(t, "statements get lost", func() bool { return leasesThrough(t.Context(), store, 4, 10) != nil })
				return
			}
			if err != nil || !warned || !report.TransactionPooler {
				t.Errorf("Check = %+v, %v; want a warning of the pooler and no problem", report, err)
			}
			if err := leasesThrough(t.Context(), store, 4, 10); err != nil {
				t.Errorf("leases: %v", err)
			}
			advisoryTxThrough(t, handle.driver, dsn)
			if n := scan[int](t, open(t, "pgx", direct), advisoryLocks); n != 0 {
				t.Errorf("%d advisory locks are left", n)
			}
		})
	}
}

// leasesThrough acquires and releases so many leases in so many goroutines.
func leasesThrough(ctx context.Context, store *bunstore.Store, goroutines, pairs int) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range pairs {
				if errs[g] = leaseThrough(ctx, store, fmt.Sprintf("job:%d", g), fmt.Sprint(i)); errs[g] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func leaseThrough(ctx context.Context, store *bunstore.Store, resource, attempt string) error {
	lock, err := store.Acquire(ctx, locks.Request{Resource: resource, Owner: "w", Attempt: attempt, TTL: time.Hour})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	grant := locks.Grant{Resource: resource, Owner: "w", Token: lock.Token}
	if _, err := store.Acquire(ctx, locks.Request{Resource: resource, Owner: "other", Attempt: "x", TTL: time.Hour}); !errors.Is(err, locks.ErrHeld) {
		return fmt.Errorf("acquire of what is held: %w", err)
	}
	if _, err := store.Renew(ctx, grant, time.Hour); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if got, err := store.Get(ctx, resource); err != nil || got.Token != lock.Token {
		return fmt.Errorf("get: token %d, want %d: %w", got.Token, lock.Token, err)
	}
	if err := store.Release(ctx, grant); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

func advisoryTxThrough(t *testing.T, driver, dsn string) {
	t.Helper()
	first, second := begin(t, open(t, driver, dsn), nil), begin(t, open(t, driver, dsn), nil)
	tryLockTx(t, first, "a")
	held(t, "through the pooler", advisory.TryLockTx(t.Context(), second, "a"))
	held(t, "through the pooler", advisory.LockTx(t.Context(), second, "a", advisory.WithLimit(10*time.Millisecond)))
	granted := make(chan error)
	go func() { granted <- advisory.LockTx(t.Context(), second, "a", advisory.WithLimit(time.Minute)) }()
	rollback(t, first)
	if err := <-granted; err != nil {
		t.Errorf("LockTx = %v", err)
	}
	rollback(t, second)
}
