package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"modernc.org/sqlite" // driver "sqlite", without cgo
)

// maxConnections keeps a burst of requests from taking every connection that the server has.
const maxConnections = 20

// openDatabase opens what the URL names: an SQLite file or a PostgreSQL database.
func openDatabase(ctx context.Context, url string) (*bun.DB, error) {
	var driver string
	var dialect schema.Dialect
	switch {
	case strings.HasPrefix(url, "postgres://"), strings.HasPrefix(url, "postgresql://"):
		driver, dialect = "pgx", pgdialect.New()
	case strings.HasPrefix(url, "file:"):
		if strings.Contains(url, ":memory:") || strings.Contains(url, "mode=memory") {
			return nil, errors.New("DATABASE_URL must name a file: in memory every connection would have a database of its own")
		}
		driver, dialect = "sqlite", sqlitedialect.New()
		url = withPragmas(url)
	default: // the URL is not shown: it may hold a password
		return nil, errors.New("DATABASE_URL must be a postgres:// or file: URL")
	}
	pool, err := sql.Open(driver, url)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	pool.SetMaxOpenConns(maxConnections)
	pool.SetMaxIdleConns(maxConnections)

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reach the database: %w", err), pool.Close())
	}
	return bun.NewDB(pool, dialect), nil
}

// withPragmas sets up SQLite for an application that serves requests: readers that do not wait for the writer (WAL),
// one sync per checkpoint instead of one per commit, and some patience with another writer.
func withPragmas(url string) string {
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
}

// errDatabase is a database that did not do its work: down, busy, full. Nothing is wrong with the request.
var errDatabase = errors.New("the database failed")

// isMistake tells an error that comes again whenever the statement does, such as a table that is not there. Whatever else
// a driver says, there are too many ways to be down to list them, the same request may succeed later.
func isMistake(err error) bool {
	var postgres interface{ SQLState() string }
	if errors.As(err, &postgres) {
		for _, class := range []string{"22", "23", "42"} { // data, constraints, syntax and access
			if strings.HasPrefix(postgres.SQLState(), class) {
				return true
			}
		}
		return false
	}
	var file *sqlite.Error
	if errors.As(err, &file) {
		switch file.Code() & 0xff { // the rest is detail
		case 1, 19, 20, 21, 25: // SQLITE_ERROR, CONSTRAINT, MISMATCH, MISUSE, RANGE
			return true
		}
	}
	return false
}
