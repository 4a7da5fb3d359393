package integration_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// drivers are the two ways bun's users reach PostgreSQL.
var drivers = map[string]func(dsn string) (*sql.DB, error){
	"pgx": func(dsn string) (*sql.DB, error) { return sql.Open("pgx", dsn) },
	"pgdriver": func(dsn string) (*sql.DB, error) {
		return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(dsn))), nil
	},
}

// open returns bun on a pool of its own, closed with the test.
func open(tb testing.TB, driver, dsn string) *bun.DB {
	tb.Helper()
	sqldb, err := drivers[driver](dsn)
	if err != nil {
		tb.Fatalf("open with %s: %v", driver, err)
	}
	db := bun.NewDB(sqldb, pgdialect.New())
	tb.Cleanup(func() { db.Close() })

	return db
}

// scan answers a query of one row and one column.
func scan[T any](tb testing.TB, db *bun.DB, query string, args ...any) T {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	var v T
	if err := db.NewRaw(query, args...).Scan(ctx, &v); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}

	return v
}

func exec(tb testing.TB, db *bun.DB, query string, args ...any) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

func TestPostgresAnswers(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db := open(t, driver, postgres.Shared(t).DSN())

			got := scan[string](t, db, "SELECT version()")

			if !strings.HasPrefix(got, "PostgreSQL ") {
				t.Errorf("version() = %q, want PostgreSQL …", got)
			}
			if _, borrowed := os.LookupEnv("ROWLEASE_POSTGRES_DSN"); !borrowed {
				if got := scan[string](t, db, "SHOW max_connections"); got != "200" {
					t.Errorf("max_connections = %s, want 200", got)
				}
			}
		})
	}
}

func TestPostgresDatabaseIsFresh(t *testing.T) {
	t.Parallel()
	server := postgres.Shared(t)
	const tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"

	var dropped string
	t.Run("one", func(t *testing.T) {
		dsn := server.Database(t)
		first, second := open(t, "pgx", dsn), open(t, "pgdriver", server.Database(t))
		exec(t, first, "CREATE TABLE invoices (id bigint)")

		if got := scan[int](t, first, tables); got != 1 {
			t.Errorf("%d tables where one was made", got)
		}
		if got := scan[int](t, second, tables); got != 0 {
			t.Errorf("%d tables in a fresh database", got)
		}
		dropped = scan[string](t, first, "SELECT current_database()")

		// A connection that outlives the test must not keep its database.
		lingering, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		if err := lingering.PingContext(t.Context()); err != nil {
			t.Fatal(err)
		}
	})

	db := open(t, "pgx", server.DSN())
	if got := scan[int](t, db, "SELECT count(*) FROM pg_database WHERE datname = ?", dropped); got != 0 {
		t.Errorf("database %s is still there after its test", dropped)
	}
}

func TestPostgresDatabaseClauses(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t, "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")

	if got := scan[string](t, open(t, "pgx", dsn), "SHOW server_encoding"); got != "SQL_ASCII" {
		t.Errorf("server_encoding = %s, want SQL_ASCII", got)
	}
}

// One server goes through all that can happen to it, so that the package pays for
// one more start and not for four.
func TestPostgresLifecycle(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, postgres.Durable(), postgres.Setting("TimeZone", "Asia/Kathmandu"))
	dsn := server.Database(t)
	db := open(t, "pgx", dsn)
	exec(t, db, "CREATE TABLE invoices (id bigint)")

	for parameter, want := range map[string]string{"fsync": "on", "TimeZone": "Asia/Kathmandu"} {
		if got := scan[string](t, db, "SHOW "+parameter); got != want {
			t.Errorf("%s = %s, want %s", parameter, got, want)
		}
	}

	// survives looks with fresh pools: whether an old one recovers is the drivers'
	// business.
	survives := func(what string) {
		t.Helper()
		for driver := range drivers {
			fresh := open(t, driver, dsn)
			exec(t, fresh, "INSERT INTO invoices VALUES (1)")
			if got := scan[int](t, fresh, "SELECT count(*) FROM invoices"); got == 0 {
				t.Errorf("nothing in the table after %s", what)
			}
			fresh.Close()
		}
	}
	survives("start")
	rows := scan[int](t, open(t, "pgx", dsn), "SELECT count(*) FROM invoices")

	server.Restart(t)
	survives("restart")

	server.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	if err := open(t, "pgx", dsn).PingContext(ctx); err == nil {
		t.Error("a paused server answers")
	}
	cancel()
	server.Unpause(t)
	survives("pause")

	server.Kill(t)
	if err := open(t, "pgx", dsn).PingContext(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	server.StartAgain(t)
	survives("kill")
	if got := scan[int](t, open(t, "pgx", dsn), "SELECT count(*) FROM invoices"); got != rows+6 {
		t.Errorf("%d rows after a crash, want %d", got, rows+6)
	}
	if logs := server.Logs(t); !strings.Contains(logs, "automatic recovery in progress") {
		t.Errorf("no recovery in the log of a killed server:\n%s", logs)
	}
}

// A test may end, or fail, while its server hangs.
func TestPostgresRemovedWhilePaused(t *testing.T) {
	t.Parallel()
	postgres.Start(t).Pause(t)
}
