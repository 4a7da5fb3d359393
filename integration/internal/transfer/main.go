// Command transfer is one of several processes that move money between the same accounts: see bank.go for how, and
// transfer_test.go in package integration for what must come of it.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

type config struct {
	dsn        string
	process    int
	goroutines int
	transfers  int
	accounts   int
	ttl        time.Duration
	pauseEvery int
	guard      bool
	first      bool
	late       bool
}

func main() {
	var c config
	flag.StringVar(&c.dsn, "dsn", "", "PostgreSQL")
	flag.IntVar(&c.process, "process", 0, "the number of this process, for the ledger")
	flag.IntVar(&c.goroutines, "goroutines", 8, "how many move money at once")
	flag.IntVar(&c.transfers, "transfers", 100, "how many transfers this process makes in all")
	flag.IntVar(&c.accounts, "accounts", 20, "there are the accounts 1 to this")
	flag.DurationVar(&c.ttl, "ttl", 150*time.Millisecond, "TTL of the leases, which are not renewed")
	flag.IntVar(&c.pauseEvery, "pause-every", 20, "one of so many transfers pauses for longer than the TTL before it writes")
	flag.BoolVar(&c.guard, "guard", true, "guard both leases in the transaction that writes")
	flag.BoolVar(&c.first, "first", false, "begin with a transfer from account 1 to account 2")
	flag.BoolVar(&c.late, "late", false, "begin with such a transfer, that writes when another process has taken over and written")
	flag.Parse()
	if err := run(c); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(c config) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	sqldb, err := sql.Open("pgx", c.dsn)
	if err != nil {
		return err
	}
	defer sqldb.Close() //nolint:errcheck // the process ends
	sqldb.SetMaxOpenConns(c.goroutines)
	sqldb.SetMaxIdleConns(c.goroutines)
	db := bun.NewDB(sqldb, pgdialect.New())
	store, err := bunstore.New(db)
	if err != nil {
		return err
	}
	locker, err := locks.New(store, locks.WithTTL(c.ttl), locks.WithoutRenewal(), locks.WithMargin(time.Millisecond),
		locks.WithBackoff(time.Millisecond, 20*time.Millisecond))
	if err != nil {
		return err
	}
	b := &bank{config: c, db: db, store: store, locker: locker}
	b.lasts.Store(int64(c.ttl))
	if err := b.work(ctx); err != nil {
		return err
	}
	if err := locker.Close(ctx); err != nil {
		return err
	}
	fmt.Println("done", b.done.Load(), "refused", b.refused.Load(), "paused", b.paused.Load())
	return nil
}

// work makes all of the transfers, and stops at the first error.
func (b *bank) work(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fixed := transfer{from: 1, to: 2, amount: 1}
	if b.late {
		fixed.wait = func(ctx context.Context) error {
			fmt.Println("read")
			return b.untilTakenOver(ctx, fixed.from)
		}
	}
	if b.first || b.late {
		if err := b.make(ctx, fixed); err != nil {
			return err
		}
	}
	jobs := make(chan transfer)
	var workers sync.WaitGroup
	for range b.goroutines {
		workers.Go(func() {
			for job := range jobs {
				if err := b.make(ctx, job); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	for ctx.Err() == nil && b.begun < b.transfers {
		select {
		case jobs <- b.random():
		case <-ctx.Done():
		}
	}
	close(jobs)
	workers.Wait()
	return context.Cause(ctx)
}

// random is any transfer; some of them pause, for one to two times the TTL.
func (b *bank) random() transfer {
	b.begun++
	from := 1 + rand.N(b.accounts)
	to := 1 + (from+rand.N(b.accounts-1))%b.accounts
	job := transfer{from: from, to: to, amount: 1 + rand.N(100)}
	if rand.N(b.pauseEvery) == 0 {
		job.wait = func(ctx context.Context) error {
			b.paused.Add(1)
			ttl := time.Duration(b.lasts.Load())
			return sleep(ctx, ttl+rand.N(ttl))
		}
	}
	return job
}
