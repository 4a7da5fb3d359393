package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/migrate"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// grant acquires the resource through the store and returns the token.
func grant(t *testing.T, db *bun.DB, resource string, options ...bunstore.Option) int64 {
	t.Helper()
	store, err := bunstore.New(db, options...)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := store.Acquire(t.Context(), locks.Request{Resource: resource, Owner: "w", Attempt: fmt.Sprint(time.Now().UnixNano()), TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return lock.Token
}

// byDefault sets a parameter for the sessions that are opened from now on.
func byDefault(t *testing.T, db *bun.DB, parameter, value string) {
	t.Helper()
	exec(t, db, fmt.Sprintf(`DO $$ BEGIN EXECUTE format($f$ALTER DATABASE %%I SET %s = %s$f$, current_database()); END $$`, parameter, value))
}

func TestMigrateUpDownUp(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		ctx := t.Context()
		db := open(t, driver, dsn)
		var last int64
		grow := func(when string) {
			t.Helper()
			for _, resource := range []string{"a", "b", "a"} {
				if token := grant(t, db, resource); token <= last {
					t.Errorf("%s: token %d after %d", when, token, last)
				} else {
					last = token
				}
			}
		}
		for range 2 {
			if err := bunstore.Migrate(ctx, db); err != nil {
				t.Fatal(err)
			}
		}
		grow("at first")
		exec(t, db, "DELETE FROM distributed_locks")
		grow("leases deleted by hand")
		exec(t, db, "TRUNCATE distributed_locks RESTART IDENTITY")
		grow("table truncated")
		for range 2 {
			if err := bunstore.Rollback(ctx, db); err != nil {
				t.Fatal(err)
			}
		}
		if scan[bool](t, db, "SELECT to_regclass('distributed_locks') IS NOT NULL") {
			t.Error("the table is there after the rollback")
		}
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
		grow("after down and up")
		exec(t, db, "DROP TABLE distributed_locks")
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
		grow("table dropped by hand")
		exec(t, db, "DROP TABLE distributed_lock_waiters")
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
		grow("table of those who wait dropped by hand")
		exec(t, db, "DROP TABLE distributed_lock_shares")
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
		grow("table of shares dropped by hand")
		// A database from before there were a queue and shares gets them.
		exec(t, db, "DROP TABLE distributed_lock_waiters, distributed_lock_shares")
		exec(t, db, "DELETE FROM distributed_locks_migrations WHERE name LIKE '%waiters' OR name LIKE '%shares'")
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Fatal(err)
		}
		grow("from a database without a queue and shares")
		if n := scan[int](t, db, "SELECT pg_relation_size('distributed_lock_waiters') / 8192"); n < 9 {
			t.Errorf("the table of those who wait has %d pages: plans that read all of it are cheap", n)
		}
	})
}

func TestMigrateTenReplicasAtOnce(t *testing.T) {
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			forEachDriver(t, func(t *testing.T, driver, dsn string) {
				byDefault(t, open(t, driver, dsn), "default_transaction_isolation", "'"+isolation+"'")
				for round := range 3 {
					errs := make([]error, 10)
					var group sync.WaitGroup
					for i := range errs {
						db := open(t, driver, dsn)
						db.SetMaxOpenConns(1)
						group.Go(func() { errs[i] = bunstore.Migrate(t.Context(), db) })
					}
					group.Wait()
					if err := errors.Join(errs...); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					db := open(t, driver, dsn)
					if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks_migrations"); n != 3 {
						t.Errorf("round %d: %d records", round, n)
					}
					if token := grant(t, db, "a"); token != int64(round+1) {
						t.Errorf("round %d: token %d", round, token)
					}
					if round == 1 {
						continue // and once when everything is there
					}
					if err := bunstore.Rollback(t.Context(), db); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// The host's Migrator takes no lock: our migrations succeed all the same, on a table that is not there and on one that is.
func TestRegisteredMigrationsTenReplicasAtOnce(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		set, err := bunstore.Migrations()
		if err != nil {
			t.Fatal(err)
		}
		if err := migrate.NewMigrator(open(t, driver, dsn), set).Init(t.Context()); err != nil { // it is Init that races
			t.Fatal(err)
		}
		errs := make([]error, 10)
		var group sync.WaitGroup
		for i := range errs {
			host := migrate.NewMigrator(open(t, driver, dsn), set, migrate.WithMarkAppliedOnSuccess(i%2 == 0))
			group.Go(func() { _, errs[i] = host.Migrate(t.Context()) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		grant(t, open(t, driver, dsn), "a")
	})
}

func TestMigrateFailedUp(t *testing.T) {
	// A type of the table's name makes the second statement fail, after the sequence is made.
	const obstacle, left = "CREATE TYPE distributed_locks AS ENUM ()", "SELECT count(*) FROM pg_class WHERE relname LIKE 'distributed%'"
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		ctx := t.Context()
		db := open(t, driver, dsn)
		exec(t, db, obstacle)
		err := bunstore.Migrate(ctx, db)
		if err == nil || !strings.Contains(err.Error(), "20261130000001_distributed_locks") {
			t.Errorf("Migrate: %v, want an error that names the migration", err)
		}
		if n := scan[int](t, db, left); n != 0 {
			t.Errorf("%d relations are left of the failed migration", n)
		}
		exec(t, db, "DROP TYPE distributed_locks")
		if err := bunstore.Migrate(ctx, db); err != nil {
			t.Errorf("again: %v", err)
		}

		for _, onSuccess := range []bool{true, false} {
			name := fmt.Sprintf("host_%t", onSuccess)
			set, err := bunstore.Migrations(bunstore.WithTable(name))
			if err != nil {
				t.Fatal(err)
			}
			host := migrate.NewMigrator(db, set, migrate.WithMarkAppliedOnSuccess(onSuccess))
			if err := host.Init(ctx); err != nil {
				t.Fatal(err)
			}
			exec(t, db, "CREATE TYPE "+name+" AS ENUM ()")
			if _, err := host.Migrate(ctx); err == nil {
				t.Errorf("%s: Migrate succeeded beside a type of the table's name", name)
			}
			exec(t, db, "DROP TYPE "+name)
			if !onSuccess { // as documented: bun has marked it
				if _, err := host.Rollback(ctx); err != nil {
					t.Errorf("%s: rollback: %v", name, err)
				}
			}
			if _, err := host.Migrate(ctx); err != nil {
				t.Errorf("%s: again: %v", name, err)
			}
			grant(t, db, "a", bunstore.WithTable(name))
		}
	})
}

func TestMigrateNamesAndSchemas(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		ctx := t.Context()
		db := open(t, driver, dsn)
		exec(t, db, `CREATE SCHEMA "My ""Schema"""`)
		for _, schema := range []string{"", `My "Schema"`, "public"} {
			for _, name := range []string{`My "Leases"`, "what?name", "a.b", `back\slash`, "größe", "select", strings.Repeat("x", 52)} {
				options := []bunstore.TableOption{bunstore.WithTable(name)}
				if schema != "" {
					options = append(options, bunstore.WithSchema(schema))
				}
				var migrations []bunstore.MigrationOption
				var stores []bunstore.Option
				for _, option := range options {
					migrations, stores = append(migrations, option), append(stores, option)
				}
				if err := errors.Join(bunstore.Migrate(ctx, db, migrations...), bunstore.Migrate(ctx, db, migrations...)); err != nil {
					t.Errorf("%q.%q: %v", schema, name, err)
					continue
				}
				first, second := grant(t, db, "a", stores...), grant(t, db, "a", stores...)
				if first >= second {
					t.Errorf("%q.%q: tokens %d and %d", schema, name, first, second)
				}
				store, err := bunstore.New(db, stores...)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := store.Check(ctx); err != nil {
					t.Errorf("%q.%q: %v", schema, name, err)
				}
				if err := bunstore.Rollback(ctx, db, migrations...); err != nil {
					t.Errorf("%q.%q: %v", schema, name, err)
				}
			}
		}
		if err := bunstore.Migrate(ctx, db, bunstore.WithSchema("nowhere")); err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("a schema that is not there: %v", err)
		}
	})
}

func TestRegisterMigrationsIntoAHostsSet(t *testing.T) {
	files := fstest.MapFS{
		"20200101000000_schema.up.sql":      {Data: []byte("CREATE SCHEMA app")},
		"20200101000000_schema.down.sql":    {Data: []byte("DROP SCHEMA app CASCADE")},
		"20261130000001_orders.tx.up.sql":   {Data: []byte("CREATE TABLE orders (id bigint)")}, // our own id
		"20261130000001_orders.tx.down.sql": {Data: []byte("DROP TABLE orders")},
		"20990101000000_view.up.sql":        {Data: []byte("CREATE VIEW held AS SELECT * FROM distributed_locks")},
		"20990101000000_view.down.sql":      {Data: []byte("DROP VIEW held")},
	}
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		ctx := t.Context()
		db := open(t, driver, dsn)
		set := migrate.NewMigrations()
		if err := errors.Join(
			registerBoth(set),
			set.Discover(files),
		); err != nil {
			t.Fatal(err)
		}
		var hooked []string
		host := migrate.NewMigrator(db, set, migrate.AfterMigration(func(_ context.Context, _ bun.IConn, m *migrate.Migration) error {
			hooked = append(hooked, m.Name)
			return nil
		}))
		if err := host.Init(ctx); err != nil {
			t.Fatal(err)
		}
		want := "20200101000000 20200101000001_app.distributed_locks 20200101000001_app.distributed_locks_shares " +
			"20200101000001_app.distributed_locks_waiters 20261130000001 20261130000001_distributed_locks " +
			"20261130000002_distributed_locks_waiters 20261130000003_distributed_locks_shares 20990101000000"
		for round := range 2 {
			hooked = nil
			if _, err := host.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(hooked, " "); got != want {
				t.Errorf("round %d ran %s, want %s", round, got, want)
			}
			if token := grant(t, db, "a"); token != int64(round+1) {
				t.Errorf("round %d: token %d", round, token)
			}
			if token := grant(t, db, "a", bunstore.WithSchema("app")); token != 1 { // its sequence went with the host's schema
				t.Errorf("round %d: token %d in app", round, token)
			}
			if _, err := host.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if scan[bool](t, db, "SELECT to_regclass('distributed_locks') IS NOT NULL OR to_regclass('orders') IS NOT NULL") {
				t.Error("tables are left after the rollback")
			}
		}
	})
}

// registerBoth puts two tables into one set.
func registerBoth(set *migrate.Migrations) error {
	return errors.Join(
		bunstore.RegisterMigrations(set),
		bunstore.RegisterMigrations(set, bunstore.WithSchema("app"), bunstore.WithMigrationID("20200101000001")),
	)
}

func TestMigrateEndsWithItsContext(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		holder, err := open(t, driver, dsn).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback()
		if _, err := holder.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(1919907692, 1700885349)"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		started := time.Now()
		if err := bunstore.Migrate(ctx, db); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 3*time.Second {
			t.Errorf("while another migration runs: %v after %v, want the deadline", err, time.Since(started))
		}
		done := make(chan error, 1)
		go func() { done <- bunstore.Migrate(t.Context(), db) }()
		if err := holder.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("when the other has finished: %v", err)
		}
	})
}

// A role that cannot make tables may call Migrate where there is nothing to do.
func TestMigrateWithoutTheRightTo(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	owner := open(t, "pgx", dsn)
	app := open(t, "pgx", asRole(t, owner, dsn))
	role := scan[string](t, app, "SELECT current_user::text")
	exec(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	if err := bunstore.Migrate(t.Context(), app); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("with the table missing: %v, want permission denied", err)
	}
	if err := bunstore.Migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	exec(t, owner, "GRANT SELECT ON distributed_locks_migrations TO "+role)
	exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks, distributed_lock_waiters, distributed_lock_shares TO "+role)
	exec(t, owner, "GRANT USAGE ON SEQUENCE distributed_locks_token_seq TO "+role)
	if err := bunstore.Migrate(t.Context(), app); err != nil {
		t.Error(err)
	}
	if token := grant(t, app, "a"); token != 1 {
		t.Errorf("token %d", token)
	}
	store, err := bunstore.New(app)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
