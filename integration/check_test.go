package integration_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// asRole makes a role with no rights and returns the DSN by which pgx's sessions become it.
func asRole(t *testing.T, owner *bun.DB, dsn string) string {
	t.Helper()
	role := "app_" + strings.ToLower(rand.Text())
	exec(t, owner, "CREATE ROLE "+role)
	t.Cleanup(func() {
		if _, err := owner.ExecContext(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("role", role)
	u.RawQuery = query.Encode()
	return u.String()
}

// checkTable runs a store's check.
func checkTable(t *testing.T, db *bun.DB, options ...bunstore.Option) (bunstore.Report, error) {
	t.Helper()
	store, err := bunstore.New(db, options...)
	if err != nil {
		t.Fatal(err)
	}
	return store.Check(t.Context())
}

// problems wants exactly one problem for each text.
func problems(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	var found *bunstore.CheckError
	if errors.As(err, &found) {
		got = found.Problems
	} else if err != nil {
		t.Errorf("a fault and no finding: %v", err)
	}
	texts(t, "problem", got, want...)
}

func texts(t *testing.T, kind string, got []string, want ...string) {
	t.Helper()
	got = slices.DeleteFunc(slices.Clone(got), func(s string) bool { return strings.HasPrefix(s, "fsync is off") }) // the test server
	if len(got) != len(want) {
		t.Errorf("%d %ss %q, want %d", len(got), kind, got, len(want))
	}
	for _, text := range want {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, text) }) {
			t.Errorf("no %s says %q: %q", kind, text, got)
		}
	}
}

func TestCheck(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		_, err := checkTable(t, db)
		problems(t, err, "the table is missing (search_path: ")
		_, err = checkTable(t, db, bunstore.WithSchema("nowhere"))
		problems(t, err, "the table is missing: run bunstore.Migrate")
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		for range 2 { // before and after the first token
			report, err := checkTable(t, db)
			problems(t, err)
			texts(t, "warning", report.Warnings)
			texts(t, "gap", report.NotChecked)
			if report.Dialect != "PostgreSQL" || report.Version == "" || report.Encoding != "UTF8" || report.Isolation != "read committed" ||
				report.Durability != "on" || report.TransactionPooler || report.RoundTrip <= 0 || report.ClockSkew.Abs() > 2*time.Second {
				t.Errorf("report %+v", report)
			}
			grant(t, db, "a")
		}
		if n := scan[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
			t.Errorf("%d advisory locks are left", n)
		}
	})
}

func TestCheckSchema(t *testing.T) {
	const insert = `INSERT INTO {s}.distributed_locks (resource, owner, token, attempt, acquired_at, expires_at) VALUES `
	cases := []struct {
		name   string
		broken []string // {s} is the schema; a statement that begins with ? may fail
		want   []string
	}{
		{"dropped", []string{`DROP TABLE {s}.distributed_locks`}, []string{"the table is missing"}},
		{"nobody can wait", []string{`DROP TABLE {s}.distributed_lock_waiters`}, []string{"of those who wait is missing"}},
		{"no ticket column", []string{`ALTER TABLE {s}.distributed_lock_waiters DROP COLUMN channel`}, []string{"column channel (text) of"}},
		{"no shares", []string{`DROP TABLE {s}.distributed_lock_shares`}, []string{"of shares is missing"}},
		{"share's token twice", []string{`ALTER TABLE {s}.distributed_lock_shares DROP CONSTRAINT distributed_lock_shares_token_key`}, []string{"no plain unique index on (token)"}},
		{"no ticket key", []string{`ALTER TABLE {s}.distributed_lock_waiters DROP CONSTRAINT distributed_lock_waiters_pkey`}, []string{"no plain unique index on (resource, number)"}},
		{"a view", []string{`ALTER TABLE {s}.distributed_locks RENAME TO hidden`, `CREATE VIEW {s}.distributed_locks AS SELECT * FROM {s}.hidden`}, []string{"not a plain table"}},
		{"unlogged", []string{`ALTER TABLE {s}.distributed_locks SET UNLOGGED`}, []string{"unlogged"}},
		{"no column", []string{`ALTER TABLE {s}.distributed_locks DROP COLUMN attempt`}, []string{"column attempt (text) is missing"}},
		{"no token column", []string{`ALTER TABLE {s}.distributed_locks DROP COLUMN token`}, []string{"column token (bigint) is missing", "column token has no plain unique index"}},
		{"varchar", []string{`ALTER TABLE {s}.distributed_locks ALTER owner TYPE varchar(200)`}, []string{"column owner is of type character varying(200)"}},
		{"no zone", []string{`ALTER TABLE {s}.distributed_locks ALTER expires_at TYPE timestamp`}, []string{"column expires_at is of type timestamp without time zone"}},
		{"whole seconds", []string{`ALTER TABLE {s}.distributed_locks ALTER expires_at TYPE timestamptz(0)`}, []string{"column expires_at is of type timestamp(0) with time zone"}},
		{"integer token", []string{`ALTER TABLE {s}.distributed_locks ALTER token TYPE integer`}, []string{"column token is of type integer"}},
		{"nullable", []string{`ALTER TABLE {s}.distributed_locks ALTER owner DROP NOT NULL`}, []string{"column owner: NOT NULL must be set"}},
		{"metadata not null", []string{`ALTER TABLE {s}.distributed_locks ALTER metadata SET NOT NULL`}, []string{"column metadata: NOT NULL must be dropped"}},
		{"no identity", []string{`ALTER TABLE {s}.distributed_locks ALTER id DROP IDENTITY`}, []string{"column id must be GENERATED"}},
		{"a serial id", []string{`ALTER TABLE {s}.distributed_locks ALTER id DROP IDENTITY`, `CREATE SEQUENCE {s}.ids`, `ALTER TABLE {s}.distributed_locks ALTER id SET DEFAULT nextval('{s}.ids')`}, nil},
		{"a column that must be given", []string{`ALTER TABLE {s}.distributed_locks ADD tenant text NOT NULL`}, []string{"column tenant is not the library's"}},
		{"columns of the host's", []string{`ALTER TABLE {s}.distributed_locks ADD note text, ADD since timestamptz NOT NULL DEFAULT now()`}, nil},
		{"default collation", []string{`ALTER TABLE {s}.distributed_locks ALTER resource TYPE text COLLATE "default"`}, []string{`column resource has the collation "default"`}},
		{
			"nondeterministic",
			[]string{
				`CREATE COLLATION {s}.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
				`ALTER TABLE {s}.distributed_locks ALTER resource TYPE text COLLATE {s}.ci, ALTER owner TYPE text COLLATE {s}.ci`,
			},
			[]string{`column resource has the collation "ci"`, `column owner has the nondeterministic collation "ci"`},
		},
		{"no unique resource", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_resource_key`}, []string{"column resource has no plain unique index"}},
		{"no unique token", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_token_key`, `CREATE INDEX ON {s}.distributed_locks (token)`}, []string{"column token has no plain unique index"}},
		{"no primary key", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_pkey`}, []string{"column id has no plain unique index"}},
		{"deferrable", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_token_key, ADD UNIQUE (token) DEFERRABLE`}, []string{"column token has no plain unique index"}},
		{"partial", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_token_key`, `CREATE UNIQUE INDEX ON {s}.distributed_locks (token) WHERE token > 0`}, []string{"column token has no plain unique index"}},
		{"on an expression", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_resource_key`, `CREATE UNIQUE INDEX ON {s}.distributed_locks (lower(resource))`}, []string{"column resource has no plain unique index"}},
		{"on two columns", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_resource_key`, `CREATE UNIQUE INDEX ON {s}.distributed_locks (resource, owner)`}, []string{"column resource has no plain unique index"}},
		{"with another collation", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_resource_key`, `CREATE UNIQUE INDEX ON {s}.distributed_locks (resource COLLATE "POSIX")`}, []string{"column resource has no plain unique index"}},
		{"invalid", []string{
			`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_token_key`, insert + `('a', 'w', 1, 'x', now(), now()), ('b', 'w', 1, 'x', now(), now())`,
			`?CREATE UNIQUE INDEX CONCURRENTLY ON {s}.distributed_locks (token)`, `SELECT setval('{s}.distributed_locks_token_seq', 9)`,
		}, []string{"column token has no plain unique index"}},
		{"made apart", []string{`ALTER TABLE {s}.distributed_locks DROP CONSTRAINT distributed_locks_token_key`, `CREATE UNIQUE INDEX ON {s}.distributed_locks (token) INCLUDE (expires_at)`}, nil},
		{"no sequence", []string{`DROP SEQUENCE {s}.distributed_locks_token_seq`}, []string{"_token_seq\" is missing"}},
		{"cycle", []string{`ALTER SEQUENCE {s}.distributed_locks_token_seq CYCLE`}, []string{"begins anew"}},
		{"cache", []string{`ALTER SEQUENCE {s}.distributed_locks_token_seq CACHE 20`}, []string{"has CACHE 20"}},
		{"owned", []string{`ALTER SEQUENCE {s}.distributed_locks_token_seq OWNED BY {s}.distributed_locks.token`}, []string{"is owned by a column"}},
		{"counts down", []string{`ALTER SEQUENCE {s}.distributed_locks_token_seq INCREMENT -1`}, []string{"counts down"}},
		{"integer", []string{`ALTER SEQUENCE {s}.distributed_locks_token_seq AS integer MAXVALUE 2000000000`}, []string{"is of type integer"}},
		{"behind, unused", []string{insert + `('a', 'w', 1, 'x', now(), now())`}, []string{"the next token would be 1, but a lease has 1"}},
		{"behind, used", []string{insert + `('a', 'w', 9, 'x', now(), now())`, `SELECT setval('{s}.distributed_locks_token_seq', 8)`}, []string{"the next token would be 9, but a lease has 9"}},
		{"ahead by setval", []string{insert + `('a', 'w', 9, 'x', now(), now())`, `SELECT setval('{s}.distributed_locks_token_seq', 10, false)`}, nil},
		{"at its end", []string{`SELECT setval('{s}.distributed_locks_token_seq', 9007199254740991)`}, []string{"is at its end"}},
	}
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		for i, test := range cases {
			t.Run(test.name, func(t *testing.T) {
				schema := fmt.Sprintf("s%d", i)
				exec(t, db, "CREATE SCHEMA "+schema)
				if err := bunstore.Migrate(t.Context(), db, bunstore.WithSchema(schema)); err != nil {
					t.Fatal(err)
				}
				for _, statement := range test.broken {
					statement = strings.ReplaceAll(statement, "{s}", schema)
					if mayFail, ok := strings.CutPrefix(statement, "?"); ok {
						_, _ = db.ExecContext(t.Context(), mayFail)
						continue
					}
					exec(t, db, statement)
				}
				report, err := checkTable(t, db, bunstore.WithSchema(schema))
				problems(t, err, test.want...)
				texts(t, "warning", report.Warnings)
				texts(t, "gap", report.NotChecked)
			})
		}
	})
}

func TestCheckSequenceWithoutAnEnd(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "ALTER SEQUENCE distributed_locks_token_seq NO MAXVALUE")
	report, err := checkTable(t, db)
	problems(t, err)
	texts(t, "warning", report.Warnings, "has no end at 2^53 - 1")
}

// Two schemas on the search_path, each with one half.
func TestCheckSequenceElsewhere(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	exec(t, db, "CREATE SCHEMA other")
	for _, options := range [][]bunstore.MigrationOption{nil, {bunstore.WithSchema("other")}} {
		if err := bunstore.Migrate(t.Context(), db, options...); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db, "DROP SEQUENCE other.distributed_locks_token_seq")
	byDefault(t, db, "search_path", "other, public")
	db.SetMaxIdleConns(0) // only new sessions know
	_, err := checkTable(t, db)
	problems(t, err, `is found in the schema "public", the table in "other"`)
}
