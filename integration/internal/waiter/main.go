// Command waiter is another process for tests and benchmarks, with those who wait in it. It does what it is told to on
// its standard input, see commands.go, and ends with that. Package process, beside it, starts and leads it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/pgdriverwaker"
	"github.com/rowlease/rowlease/bunstore/pgxwaker"
	"github.com/rowlease/rowlease/locks"
)

type config struct {
	dsn       string
	driver    string
	kind      string
	hears     string
	pool      int
	ttl       time.Duration
	ticketTTL time.Duration
	minPoll   time.Duration
	maxPoll   time.Duration
}

func main() {
	var c config
	flag.StringVar(&c.dsn, "dsn", "", "PostgreSQL")
	flag.StringVar(&c.driver, "driver", "pgx", "pgx or pgdriver, also the waker's")
	flag.StringVar(&c.kind, "kind", "queue", "how it waits: queue, poll (a try each 100 ms), or advisory (a session blocked in pg_advisory_lock)")
	flag.StringVar(&c.hears, "hears", "turns", "what the waker hears: turns, echoes (it trusts the connection, but every turn is lost), or nothing (there is no waker)")
	flag.IntVar(&c.pool, "pool", 8, "connections of the pool")
	flag.DurationVar(&c.ttl, "ttl", time.Minute, "TTL of the leases")
	flag.DurationVar(&c.ticketTTL, "ticket-ttl", 15*time.Second, "TTL of the tickets")
	flag.DurationVar(&c.minPoll, "min-poll", 50*time.Millisecond, "least pause between looks")
	flag.DurationVar(&c.maxPoll, "max-poll", time.Second, "longest pause between looks")
	flag.Parse()
	if err := run(c); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(c config) error {
	sqldb, err := c.open()
	if err != nil {
		return err
	}
	defer sqldb.Close() //nolint:errcheck // the process ends
	sqldb.SetMaxOpenConns(c.pool)
	sqldb.SetMaxIdleConns(c.pool)
	w, err := c.waiting(sqldb)
	if err != nil {
		return err
	}
	return serve(os.Stdin, w)
}

func (c config) open() (*sql.DB, error) {
	if c.driver == "pgdriver" {
		return sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(c.dsn))), nil
	}
	return sql.Open("pgx", c.dsn)
}

func (c config) waiting(db *sql.DB) (*waiters, error) {
	w := newWaiters()
	if c.kind == "advisory" {
		w.acquire = func(ctx context.Context, resource, owner string) (grant, error) {
			return lockAdvisory(ctx, db, resource, func() { w.queued(owner) })
		}
		return w, nil
	}
	options := []bunstore.Option{bunstore.WithTicketTTL(c.ticketTTL), bunstore.WithPoll(c.minPoll, c.maxPoll)}
	if c.hears != "nothing" {
		waker, err := c.waker()
		if err != nil {
			return nil, err
		}
		options = append(options, bunstore.WithWaker(waker))
	}
	store, err := bunstore.New(bun.NewDB(db, pgdialect.New()), options...)
	if err != nil {
		return nil, err
	}
	w.locker, err = locks.New(store, locks.WithTTL(c.ttl), locks.WithObserver(locks.ObserverFunc(w.observe)))
	if err != nil {
		return nil, err
	}
	w.acquire = func(ctx context.Context, resource, owner string) (grant, error) {
		lease, err := w.locker.Acquire(ctx, resource, locks.WithOwner(owner))
		return leaseGrant{lease}, err
	}
	if c.kind == "poll" {
		w.acquire = w.poll
	}
	return w, nil
}

func (c config) waker() (waker locks.Waker, err error) {
	if c.driver == "pgdriver" {
		waker, err = pgdriverwaker.New(c.dsn)
	} else {
		waker, err = pgxwaker.New(c.dsn)
	}
	if c.hears == "echoes" {
		waker = deaf{waker}
	}
	return waker, err
}

// deaf hears that the connection is well, and not a single turn.
type deaf struct{ locks.Waker }

func (d deaf) Listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	return d.Waker.Listen(ctx, channel, listening, func(payload string) {
		if _, err := strconv.ParseInt(payload, 10, 64); err != nil {
			heard(payload)
		}
	})
}

// grant is what one who waited has got.
type grant interface {
	Token() int64
	Release(ctx context.Context) error
}

type leaseGrant struct{ *locks.Lease }

// poll is how locks wait that know nothing better.
func (w *waiters) poll(ctx context.Context, resource, owner string) (grant, error) {
	for {
		lease, err := w.locker.TryAcquire(ctx, resource, locks.WithOwner(owner))
		if !errors.Is(err, locks.ErrHeld) {
			return leaseGrant{lease}, err
		}
		w.queued(owner)
		time.Sleep(100 * time.Millisecond)
	}
}

// advisoryGrant is a session that has PostgreSQL's own lock.
type advisoryGrant struct {
	conn     *sql.Conn
	resource string
}

func lockAdvisory(ctx context.Context, db *sql.DB, resource string, queued func()) (grant, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var free bool
	err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtext($1))", resource).Scan(&free)
	if err == nil && !free {
		queued() // PostgreSQL does not tell
		_, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock(hashtext($1))", resource)
	}
	return advisoryGrant{conn, resource}, err
}

func (advisoryGrant) Token() int64 { return 0 }

func (g advisoryGrant) Release(ctx context.Context) error {
	_, err := g.conn.ExecContext(ctx, "SELECT pg_advisory_unlock(hashtext($1))", g.resource)
	return errors.Join(err, g.conn.Close())
}
