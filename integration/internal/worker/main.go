// Command worker is a second process for tests: it takes a lease and does what the test asks for, and says so on its
// standard output, one line for each event.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

func main() {
	dsn := flag.String("dsn", "", "PostgreSQL")
	resource := flag.String("resource", "", "what to lease")
	ttl := flag.Duration("ttl", time.Second, "TTL")
	rounds := flag.Int("rounds", 0, "increments of the counter, each under a lease of its own; 0: hold one lease until it is lost")
	flag.Parse()
	if err := run(*dsn, *resource, *ttl, *rounds); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(dsn, resource string, ttl time.Duration, rounds int) error {
	sqldb, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer sqldb.Close() //nolint:errcheck // the process ends
	store, err := bunstore.New(bun.NewDB(sqldb, pgdialect.New()))
	if err != nil {
		return err
	}
	locker, err := locks.New(store, locks.WithTTL(ttl), locks.WithBackoff(time.Millisecond, 20*time.Millisecond))
	if err != nil {
		return err
	}
	ctx := context.Background()
	if rounds == 0 {
		return hold(ctx, locker, resource)
	}
	for range rounds {
		if err := locker.Do(ctx, resource, func(ctx context.Context, _ *locks.Lease) error {
			return increment(ctx, sqldb)
		}); err != nil {
			return err
		}
	}
	return locker.Close(ctx)
}

// increment is a lost update waiting to happen: it reads, and then writes what it read plus one.
func increment(ctx context.Context, db *sql.DB) error {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = %d", n+1))
	return err
}

func hold(ctx context.Context, locker *locks.Locker, resource string) error {
	lease, err := locker.Acquire(ctx, resource)
	if err != nil {
		return err
	}
	fmt.Println("held", lease.Token())
	<-lease.Context().Done()
	fmt.Println("lost:", lease.Err())
	return nil
}
