// Package pgbouncer gives tests a PgBouncer in front of a PostgreSQL server of package postgres.
package pgbouncer

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// PgBouncer passes connections on to every database of its server, in transaction mode.
type PgBouncer struct{ addr string }

// readyLimit is how long it may take to answer.
const readyLimit = time.Minute

// Start runs a PgBouncer for this test, with a pool of that size for each database, and removes it when the test is
// over. The test is skipped where that cannot be, see [postgres.Server.Bouncer].
func Start(tb testing.TB, server *postgres.Server, poolSize int) *PgBouncer {
	tb.Helper()
	dsn, err := url.Parse(server.DSN())
	if err != nil {
		tb.Fatal(err)
	}
	password, _ := dsn.User.Password()
	p := &PgBouncer{addr: server.Bouncer(tb, script(poolSize, dsn.User.Username(), password))}
	if err := p.waitReady(tb.Context(), server.DSN()); err != nil {
		tb.Fatalf("PgBouncer for %s: %v", tb.Name(), err)
	}
	return p
}

// script writes PgBouncer's files and becomes PgBouncer. Clients are not asked for a password; the one in the file is
// for the server.
func script(poolSize int, user, password string) string {
	return fmt.Sprintf(`set -eu
dir=$(mktemp -d)
echo '"%s" "%s"' >"$dir/users"
cat >"$dir/pgbouncer.ini" <<END
[databases]
* = host=$1 port=5432
[pgbouncer]
listen_addr = *
listen_port = $2
unix_socket_dir =
auth_type = trust
auth_file = $dir/users
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
END
exec pgbouncer "$dir/pgbouncer.ini"
`, user, password, poolSize)
}

// DSN returns the DSN of one of the server's databases by way of PgBouncer.
func (p *PgBouncer) DSN(tb testing.TB, dsn string) string {
	tb.Helper()
	through, err := p.through(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return through
}

func (p *PgBouncer) through(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	u.Host = p.addr
	return u.String(), nil
}

// waitReady waits until a query is answered.
func (p *PgBouncer) waitReady(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	through, err := p.through(dsn)
	if err != nil {
		return err
	}
	for {
		err := ask(ctx, through)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on a polite goodbye
	_, err = conn.Exec(ctx, "SELECT 1")
	return err
}
