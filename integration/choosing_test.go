package integration_test

import (
	"context"
	"os"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// The stories of docs/choosing.md on PostgreSQL, which has all the kinds of locks.
func TestTheChoosingExampleOnPostgres(t *testing.T) {
	t.Parallel()
	cmd := osexec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=20m", "./choosing")
	cmd.Dir = "../docs/examples"
	cmd.Env = append(os.Environ(), "ROWLEASE_POSTGRES_DSN="+postgres.Shared(t).Database(t), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// stockItem has a version and a token.
type stockItem struct {
	ID         int64 `bun:",pk"`
	Stock      int64
	Version    int64
	FenceToken int64
}

// What docs/choosing.md says each kind costs in round trips, those of the transaction that it is in not counted.
func TestTheCostsInRoundTrips(t *testing.T) {
	t.Parallel()
	p, dsn := through(t, migrated(t, postgres.Shared(t)))
	db := open(t, "pgdriver", dsn) // it prepares nothing
	db.SetMaxOpenConns(2)
	db.SetMaxIdleConns(2)
	exec(t, db, "CREATE TABLE stock_items (id bigint PRIMARY KEY, stock bigint, version bigint, fence_token bigint)")
	exec(t, db, "INSERT INTO stock_items VALUES (1, 10, 0, 0)")
	store := newStore(t, db)
	locker := newLocker(t, db, locks.WithTTL(locks.MaxTTL)) // no renewal comes between
	sessions, err := advisory.New(db, advisory.WithPingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := sessions.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	lease, err := locker.TryAcquire(t.Context(), "account:1")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release(context.Background())
	var leases *locks.LeaseSet

	const beginAndCommit = 2
	inTx := func(do func(ctx context.Context, tx bun.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error { return db.RunInTx(ctx, nil, do) }
	}
	for _, kind := range []struct {
		name string
		do   func(context.Context) error
		want int
	}{
		{"a lease", func(ctx context.Context) error {
			return locker.TryDo(ctx, "report", func(context.Context, *locks.Lease) error { return nil })
		}, 2},
		{"a guard", func(ctx context.Context) error {
			return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error { return lease.GuardTx(ctx, tx) })
		}, beginAndCommit + 1},
		{"TryDoTx", func(ctx context.Context) error {
			return locker.TryDoTx(ctx, store, "invoice:42", func(context.Context, locks.Tx, *locks.Lease) error { return nil })
		}, beginAndCommit + 7},
		{"TryAcquireAll", func(ctx context.Context) (err error) {
			leases, err = locker.TryAcquireAll(ctx, []string{"account:2", "account:3"})
			return err
		}, 3},
		{"a row lock", inTx(func(ctx context.Context, tx bun.Tx) error { return rowlock.Lock(ctx, tx, &stockItem{ID: 1}) }), beginAndCommit + 3},
		{"rows that are not locked", inTx(func(ctx context.Context, tx bun.Tx) error {
			condition := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("stock > 0").Order("id") }
			return rowlock.LockRows(ctx, tx, &[]stockItem{}, condition, rowlock.SkipLocked())
		}), beginAndCommit + 3},
		{"LockTx", inTx(func(ctx context.Context, tx bun.Tx) error { return advisory.LockTx(ctx, tx, "numbers") }), beginAndCommit + 1},
		{"a session lock", func(ctx context.Context) error {
			session, err := sessions.TryLock(ctx, "import")
			if err != nil {
				return err
			}
			return session.Unlock(ctx)
		}, 2},
		{"a version", func(ctx context.Context) error {
			item := stockItem{ID: 1}
			if err := db.NewSelect().Model(&item).WherePK().Scan(ctx); err != nil {
				return err
			}
			return optimistic.Update(ctx, db, &item, optimistic.WithColumns("stock"))
		}, 2},
		{"a fence", func(ctx context.Context) error {
			return fence.Update(ctx, db, &stockItem{ID: 1}, lease.Token(), fence.WithColumns("stock"))
		}, 1},
	} {
		before := p.Trips()
		if err := kind.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		if got := p.Trips() - before; got != kind.want {
			t.Errorf("%s: %d round trips, want %d", kind.name, got, kind.want)
		}
	}
	if err := leases.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
