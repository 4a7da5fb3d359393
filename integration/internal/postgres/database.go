package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlLimit bounds a statement of our own; it is long, because dropping a
// database waits for a checkpoint.
const sqlLimit = time.Minute

// Names of databases need to be unique among all processes that use one server
// (ROWLEASE_POSTGRES_DSN), not only among this one's tests.
var (
	process   = strings.ToLower(rand.Text()[:8])
	databases atomic.Int64
)

// Database creates an empty database for this test and returns its DSN. When the
// test is over the database is dropped, whoever is still connected. Clauses are
// appended to CREATE DATABASE, for example
//
//	s.Database(t, "TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
func (s *Server) Database(tb testing.TB, clauses ...string) string {
	tb.Helper()

	name := databaseName(tb.Name())
	quoted := pgx.Identifier{name}.Sanitize()
	create := strings.Join(append([]string{"CREATE DATABASE", quoted}, clauses...), " ")
	if err := s.exec(tb.Context(), create); err != nil {
		tb.Fatalf("create a database for %s: %v", tb.Name(), err)
	}

	// A test's own server takes its databases with it, and may by now be dead.
	if s.shared {
		tb.Cleanup(func() {
			ctx := context.WithoutCancel(tb.Context())
			if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)"); err != nil {
				tb.Errorf("drop the database of %s: %v", tb.Name(), err)
			}
		})
	}

	dsn := *s.dsn
	dsn.Path, dsn.RawPath = "/"+name, ""

	return dsn.String()
}

// exec runs one statement on a connection of its own, so that no connection of
// ours is left to be in the way of a restart.
func (s *Server) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, sqlLimit)
	defer cancel()

	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on a polite goodbye

	_, err = conn.Exec(ctx, sql)

	return err
}

// databaseName is unique, and says whose the database is to somebody who looks at
// the server.
func databaseName(test string) string {
	const longest = 63 // PostgreSQL cuts longer names silently

	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(strings.TrimPrefix(test, "Test")))
	name := fmt.Sprintf("t_%s_%d_%s", process, databases.Add(1), clean)

	return name[:min(len(name), longest)]
}
