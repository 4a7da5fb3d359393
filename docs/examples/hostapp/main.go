// Command hostapp is an application that guards itself with rowlease: a small payments API on echo and bun, with
// SQLite by default and with PostgreSQL where DATABASE_URL says so.
//
//   - POST /payments never runs twice at once for one Idempotency-Key: the second request gets 423.
//   - /locks is the REST API, for scripts and for other programs.
//   - /admin/locks is for operators: who holds what, and a release by force.
//
// Read routes.go for how the parts are put together, payments.go for a guarded handler, and migrations.go for how the
// table comes with the application's own.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// config is what the application can be told, by flags or by the environment.
type config struct {
	addr          string
	databaseURL   string
	adminPassword string
	passwordMade  bool // for this run; it is printed then
	leaseTTL      time.Duration
	grace         time.Duration
}

func main() {
	config, err := parse(os.Args[1:], os.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "hostapp:", err)
		os.Exit(2)
	}
	// From the first signal on the context has ended; a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, config, logger); err != nil {
		logger.Error("hostapp failed", "error", err)
		os.Exit(1)
	}
}

func parse(args []string, env func(string) string) (config, error) {
	or := func(name, otherwise string) string {
		if value := env(name); value != "" {
			return value
		}
		return otherwise
	}
	var c config
	var ttl string
	flags := flag.NewFlagSet("hostapp", flag.ContinueOnError)
	flags.StringVar(&c.addr, "addr", or("ADDR", "127.0.0.1:8080"), "where to listen (ADDR)")
	flags.StringVar(&c.databaseURL, "database", or("DATABASE_URL", "file:rowlease-demo.db"), "file:NAME or postgres://… (DATABASE_URL)")
	flags.StringVar(&ttl, "ttl", or("LEASE_TTL", "30s"), "how long a killed process keeps a payment's key (LEASE_TTL)")
	flags.DurationVar(&c.grace, "grace", 3*time.Second, "how long running payments may go on after a signal")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	c.adminPassword = env("ADMIN_PASSWORD") // no flag: every user of the machine can read those
	if c.adminPassword == "" {
		c.adminPassword, c.passwordMade = rand.Text(), true
	}
	var err error
	if c.leaseTTL, err = time.ParseDuration(ttl); err != nil {
		return c, fmt.Errorf("the TTL must be a duration such as 30s, got %q", ttl)
	}
	return c, nil
}

// run serves until ctx ends, and comes back when everything it started has stopped.
func run(ctx context.Context, config config, logger *slog.Logger) error {
	// Taken first: whoever finds the port in use has migrated nothing.
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", config.addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use; ADDR names another address, such as ADDR=127.0.0.1:8081", config.addr)
	}
	if err != nil {
		return err
	}
	defer listener.Close()

	db, err := openDatabase(ctx, config.databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := migrateDatabase(ctx, db); err != nil {
		return err
	}

	app, err := newApplication(ctx, db, config, logger)
	if err != nil {
		return err
	}
	return app.serve(ctx, listener, config.grace)
}
