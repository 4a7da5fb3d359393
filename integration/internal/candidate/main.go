// Command candidate is another process for tests that campaigns in an election until it is told to stop. It says one line for
// each event, with an instant in ns on the clock that all processes of the machine have in common, and resigns for each
// line that it reads.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"golang.org/x/sys/unix"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/pgxwaker"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
)

func main() {
	dsn := flag.String("dsn", "", "PostgreSQL")
	ttl := flag.Duration("ttl", 4*time.Second, "TTL of a term")
	limit := flag.Duration("stop-limit", 1500*time.Millisecond, "how long it may take to stop; it takes a tenth of it at most, the rest is for a busy machine")
	writes := flag.Bool("writes", false, "the leader writes to the table ledger, and once more after its term has ended")
	flag.Parse()
	if err := run(*dsn, *ttl, *limit, *writes); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(dsn string, ttl, limit time.Duration, writes bool) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // the process ends
	waker, err := pgxwaker.New(dsn)
	if err != nil {
		return err
	}
	store, err := bunstore.New(bun.NewDB(db, pgdialect.New()), bunstore.WithWaker(waker))
	if err != nil {
		return err
	}
	locker, err := locks.New(store)
	if err != nil {
		return err
	}
	candidate, err := election.New(locker, "scheduler", election.Config{
		TTL: ttl, StopLimit: limit,
		Lead: func(ctx context.Context, term *locks.Lease) (err error) {
			say("started", term.Token())
			if writes {
				err = writeUntilEnd(ctx, db, term)
			} else {
				<-ctx.Done()
				time.Sleep(rand.N(limit / 10))
			}
			say("stopped", term.Token())
			return err
		},
		Report: func(event election.Event) {
			if event.Kind == election.EventOverstayed && !writes { // one that was paused may overstay
				say("overstayed", event.Grant.Token)
			}
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			if err := candidate.Resign(ctx); err != nil {
				fmt.Println("error:", err)
			}
		}
	}()
	if err := candidate.Campaign(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return locker.Close(context.Background())
}

// writeUntilEnd writes its token, unless a newer one is there. It writes once more when its term has ended, as one that was
// paused in the middle of its work does.
func writeUntilEnd(ctx context.Context, db *sql.DB, term *locks.Lease) error {
	write := func() (bool, error) {
		result, err := db.ExecContext(context.Background(), "UPDATE ledger SET token = $1 WHERE token <= $1", term.Token())
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n == 1, err
	}
	if _, err := write(); err != nil {
		return err
	}
	say("wrote", term.Token())
	<-ctx.Done()
	wrote, err := write()
	if !wrote && err == nil {
		say("refused", term.Token())
	}
	return err
}

func say(what string, token int64) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	fmt.Println(what, token, t.Nano())
}
