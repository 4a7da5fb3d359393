// Command guard shows what a lease cannot do, and what its guard does: two worker processes pay into one account, and one
// of them is stopped past the end of its lease, with a balance that it has read and not yet written.
//
// With the guard, which is checked in the transaction that writes, the late write is refused. With -guard=false it is
// accepted, and the other worker's payment is lost.
//
// It runs on SQLite, on a file that it removes, or on PostgreSQL where DATABASE_URL says so. The workers are this program
// again, with -role=worker. Read worker.go for the guarded write, and scenario.go for who is stopped when.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what both roles are told by flags.
type config struct {
	role        string
	databaseURL string
	guard       bool

	// Of a worker.
	name    string
	account int64
	amount  int64
	ttl     time.Duration
}

func main() {
	config, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runScenario
	if config.role == "worker" {
		run = runWorker
	}
	if err := run(ctx, config); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and its signals with it
	}
}

func parse(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("guard", flag.ContinueOnError)
	flags.BoolVar(&c.guard, "guard", true, "check the lease in the transaction that writes; false shows the damage")
	flags.StringVar(&c.databaseURL, "database", os.Getenv("DATABASE_URL"), "postgres://…, or file:NAME; a temporary file by default (DATABASE_URL)")
	flags.StringVar(&c.role, "role", "", "worker, for the processes that this program starts")
	flags.StringVar(&c.name, "name", "", "the worker's name")
	flags.Int64Var(&c.account, "account", 0, "the account that the worker pays into")
	flags.Int64Var(&c.amount, "amount", 0, "what the worker pays")
	flags.DurationVar(&c.ttl, "ttl", time.Second, "how long the worker's lease lasts")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if c.role != "" && c.role != "worker" {
		return c, fmt.Errorf("unknown role %q", c.role)
	}
	return c, nil
}
