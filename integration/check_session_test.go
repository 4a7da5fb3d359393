package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
)

func TestCheckDefaultsOfTheSession(t *testing.T) {
	for _, test := range []struct {
		parameter, value   string
		problems, warnings []string
	}{
		{"default_transaction_isolation", "serializable", nil, []string{`default_transaction_isolation is "serializable"`}},
		{"default_transaction_isolation", "'repeatable read'", nil, []string{`default_transaction_isolation is "repeatable read"`}},
		{"default_transaction_read_only", "on", []string{"transactions are read-only by default"}, nil},
		{"synchronous_commit", "off", nil, []string{"synchronous_commit is off"}},
	} {
		t.Run(test.parameter+"="+test.value, func(t *testing.T) {
			forEachDriver(t, func(t *testing.T, driver, dsn string) {
				first := open(t, driver, dsn)
				if err := bunstore.Migrate(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				byDefault(t, first, test.parameter, test.value)
				report, err := checkTable(t, open(t, driver, dsn))
				problems(t, err, test.problems...)
				texts(t, "warning", report.Warnings, test.warnings...)
			})
		})
	}
}

func TestCheckEncoding(t *testing.T) {
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			dsn := postgres.Shared(t).Database(t, "TEMPLATE template0 ENCODING '"+encoding+"' LOCALE 'C'")
			db := open(t, "pgx", dsn) // pgdriver itself refuses to connect
			if err := bunstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			_, err := checkTable(t, db)
			problems(t, err, "the database's encoding is "+encoding)
		})
	}
}

// What PostgreSQL's own functions do is replaced, by functions that the search_path finds first: by those of a
// database that knows the names alone, or that lies behind a pooler.
func TestCheckImitations(t *testing.T) {
	const try = "CREATE FUNCTION public.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS "
	for _, test := range []struct {
		name               string
		replaced           string
		problems, warnings []string
	}{
		{"always true", try + "'SELECT true'", []string{"advisory locks do not exclude"}, nil},
		{"never true", try + "'SELECT false'", []string{"advisory locks do not exclude"}, nil},
		{
			"shared ones exclude nobody", "CREATE FUNCTION public.pg_try_advisory_xact_lock_shared(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			[]string{"advisory locks do not exclude"},
			nil,
		},
		{"not there", try + "'SELECT no_such_function()'", []string{"does not answer as PostgreSQL"}, nil},
		{
			"backends in turn", "CREATE SEQUENCE turn; CREATE FUNCTION public.pg_backend_pid() RETURNS integer LANGUAGE sql AS $$SELECT nextval('public.turn')::integer$$",
			nil,
			[]string{"pooler in transaction mode"},
		},
		{
			"too old", "CREATE FUNCTION public.current_setting(text) RETURNS text LANGUAGE sql AS $$SELECT CASE $1 WHEN 'server_version' THEN '11.22' WHEN 'server_version_num' THEN '110022' ELSE pg_catalog.current_setting($1) END$$",
			[]string{"PostgreSQL 11.22 is too old"},
			nil,
		},
		{"a replica", "CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true'", []string{"the server is a replica"}, nil},
		{
			"another clock", "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$SELECT pg_catalog.clock_timestamp() - interval '3 minutes'$$",
			nil,
			[]string{"the database's clock is -3m0"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachDriver(t, func(t *testing.T, driver, dsn string) {
				first := open(t, driver, dsn)
				if err := bunstore.Migrate(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				body := "SET check_function_bodies = off; " + test.replaced
				exec(t, first, body)
				byDefault(t, first, "search_path", "public, pg_catalog")
				report, err := checkTable(t, open(t, driver, dsn))
				problems(t, err, test.problems...)
				texts(t, "warning", report.Warnings, test.warnings...)
			})
		})
	}
}

func TestCheckRights(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	owner := open(t, "pgx", dsn)
	exec(t, owner, "CREATE SCHEMA app")
	schema := bunstore.WithSchema("app")
	if err := bunstore.Migrate(t.Context(), owner, schema); err != nil {
		t.Fatal(err)
	}
	app := open(t, "pgx", asRole(t, owner, dsn))
	role := scan[string](t, app, "SELECT current_user::text")

	_, err := checkTable(t, app, schema)
	problems(t, err, "GRANT USAGE ON SCHEMA")
	exec(t, owner, "GRANT USAGE ON SCHEMA app TO "+role)
	report, err := checkTable(t, app, schema)
	problems(t, err, "the role may not SELECT, INSERT, UPDATE, DELETE on the table:",
		`the role may not SELECT, INSERT, UPDATE, DELETE on the table "app"."distributed_lock_waiters"`,
		`the role may not SELECT, INSERT, UPDATE, DELETE on the table "app"."distributed_lock_shares"`, "the role may not use the sequence")
	texts(t, "gap", report.NotChecked, "whether the next token is larger")
	exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON app.distributed_locks, app.distributed_lock_waiters, app.distributed_lock_shares TO "+role)
	exec(t, owner, "GRANT SELECT ON SEQUENCE app.distributed_locks_token_seq TO "+role)
	_, err = checkTable(t, app, schema)
	problems(t, err, "the role may not use the sequence")
	exec(t, owner, "REVOKE SELECT ON SEQUENCE app.distributed_locks_token_seq FROM "+role)
	exec(t, owner, "GRANT USAGE ON SEQUENCE app.distributed_locks_token_seq TO "+role)
	report, err = checkTable(t, app, schema)
	problems(t, err)
	texts(t, "gap", report.NotChecked)

	exec(t, owner, "SELECT setval('app.distributed_locks_token_seq', 4)")
	exec(t, owner, "INSERT INTO app.distributed_locks (resource, owner, token, attempt, acquired_at, expires_at) VALUES ('a', 'w', 5, 'x', now(), now())")
	_, err = checkTable(t, app, schema)
	problems(t, err, "the next token would be 5, but a lease has 5")
	exec(t, owner, "SELECT setval('app.distributed_locks_token_seq', 5)")

	exec(t, owner, "ALTER TABLE app.distributed_locks ENABLE ROW LEVEL SECURITY")
	_, err = checkTable(t, app, schema)
	problems(t, err, "row-level security hides leases")
}

func TestCheckOfASmallPool(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(1)
		report, err := checkTable(t, db)
		problems(t, err)
		texts(t, "gap", report.NotChecked, "the pool has no second connection to give")

		db.SetMaxOpenConns(2)
		taken, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		report, err = checkTable(t, db)
		problems(t, err)
		texts(t, "gap", report.NotChecked, "the pool has no second connection to give")

		db = open(t, driver, dsn)
		db.SetMaxOpenConns(1)
		last, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer last.Close()
		store, err := bunstore.New(db)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		started := time.Now()
		if _, err := store.Check(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 2*time.Second {
			t.Errorf("with the one connection taken: %v after %v, want the deadline", err, time.Since(started))
		}
	})
}

func TestCheckAndMigrateOfAFrozenServer(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	dsn := server.Database(t)
	pools := map[string]*bun.DB{}
	for driver := range drivers {
		pools[driver] = open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), pools[driver]); err != nil {
			t.Fatal(err)
		}
	}
	server.Pause(t)
	for driver, db := range pools {
		store, err := bunstore.New(db)
		if err != nil {
			t.Fatal(err)
		}
		for name, call := range map[string]func(context.Context) error{
			"Check":    func(ctx context.Context) error { _, err := store.Check(ctx); return err },
			"Migrate":  func(ctx context.Context) error { return bunstore.Migrate(ctx, db) },
			"Rollback": func(ctx context.Context) error { return bunstore.Rollback(ctx, db) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			started := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 3*time.Second {
				t.Errorf("%s, %s: %v after %v, want the deadline", driver, name, err, time.Since(started))
			}
			cancel()
		}
	}
	server.Unpause(t)
	for driver := range pools {
		_, err := checkTable(t, open(t, driver, dsn))
		problems(t, err)
	}
}

func TestCheckOfADatabaseThatIsNotThere(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := checkTable(t, db)
		var found *bunstore.CheckError
		if err == nil || errors.As(err, &found) || errors.Is(err, sql.ErrNoRows) {
			t.Errorf("a closed pool: %v, want the fault and no finding", err)
		}
	})
}
