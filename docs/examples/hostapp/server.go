package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// serve answers requests until ctx ends, and then stops in the order that frees every lease:
//
//  1. no new requests, those that wait for a lease over REST are told to go, and for the grace period those that run may
//     finish;
//  2. the locker closes: the context of every guarded request ends, its work stops, and then its lease is released;
//  3. the last answers go out.
//
// Leases that clients took over REST are theirs: they stay until they are released or end by time.
func (a *application) serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	server := &http.Server{
		Handler:           a.echo,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      maxWork + 10*time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.logger.Handler(), slog.LevelWarn),
	}

	var background sync.WaitGroup
	purging, stopPurging := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { a.janitor.Run(purging) })
	defer background.Wait()
	defer stopPurging()

	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	a.logger.Info("listening", "address", listener.Addr().String())
	fmt.Print(welcome(listener.Addr().String(), a.config))

	select {
	case err := <-serving:
		return errors.Join(err, a.close(server, grace))
	case <-ctx.Done():
		a.logger.Info("stopping; a second signal ends at once")
		return a.close(server, grace)
	}
}

func (a *application) close(server *http.Server, grace time.Duration) error {
	within := func(limit time.Duration, stop func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return stop(ctx)
	}
	_ = within(time.Second, a.rest.Close) // Shutdown would wait for requests that wait; the last word of it is below
	running := within(grace, server.Shutdown)
	err := within(5*time.Second, a.locker.Close)
	if running != nil { // some were cut short just now
		running = within(time.Second, server.Shutdown)
	}
	err = errors.Join(err, running, within(5*time.Second, a.rest.Close)) // it gives back what clients asked for that hung up
	if running != nil {
		err = errors.Join(err, server.Close())
	}
	if err == nil {
		a.logger.Info("stopped; every lease of this process is free")
	}
	return err
}

// welcome is what a new user tries.
func welcome(address string, config config) string {
	credentials := `"` + adminUser + `:$ADMIN_PASSWORD"`
	if config.passwordMade {
		credentials = adminUser + ":" + config.adminPassword
	}
	return fmt.Sprintf(`
Try, from another terminal:

  # A payment that takes 5 s, and the same one again while it runs: 201 in the end, 423 at once.
  curl -i -X POST '%[1]s/payments?work=5s' -H 'Idempotency-Key: a1' -H 'content-type: application/json' -d '{"amount":100}' &
  curl -i -X POST '%[1]s/payments?work=5s' -H 'Idempotency-Key: a1' -H 'content-type: application/json' -d '{"amount":100}'

  # A lease over REST: the first gets it, the second does not, and only its owner releases it.
  curl -s -X POST %[1]s/locks/job:42 -H 'content-type: application/json' -d '{"owner":"w1","ttl_seconds":30}'
  curl -s -X POST %[1]s/locks/job:42 -H 'content-type: application/json' -d '{"owner":"w2","ttl_seconds":30}'
  curl -i -X DELETE '%[1]s/locks/job:42?owner=w2'
  curl -i -X DELETE '%[1]s/locks/job:42?owner=w1'

  # What operators see: who holds what, since when, until when.
  curl -s -u %[2]s %[1]s/admin/locks

`, address, credentials)
}
