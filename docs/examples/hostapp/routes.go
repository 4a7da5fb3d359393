package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

const (
	keyHeader     = "Idempotency-Key"
	adminUser     = "admin"
	maxBodyLength = "64K"
)

// application is all that runs between the database and the listener.
type application struct {
	echo    *echo.Echo
	locker  *locks.Locker
	rest    *lockhttp.API
	janitor *locks.Janitor
	logger  *slog.Logger
	config  config
}

// newApplication puts the parts together: one store, one locker, and what is mounted on them.
func newApplication(ctx context.Context, db *bun.DB, config config, logger *slog.Logger) (*application, error) {
	store, err := bunstore.New(db)
	if err != nil {
		return nil, err
	}
	// An unfit database is found now, and not by the first payment.
	if _, err := store.Check(ctx); err != nil {
		return nil, err
	}
	locker, err := locks.New(store, locks.WithTTL(config.leaseTTL), locks.WithLogger(logger))
	if err != nil {
		return nil, err
	}
	// Released leases leave no rows; the janitor removes those of processes that were killed.
	janitor, err := locks.NewJanitor(store)
	if err != nil {
		return nil, err
	}

	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = problems(logger)
	e.Use(logRequests(logger), middleware.Recover(), middleware.BodyLimit(maxBodyLength))

	// One request at a time for each key; a request without a key is refused.
	payments := &payments{db: db}
	e.POST("/payments", payments.create, echolock.Middleware(locker, "header:"+keyHeader))

	// Anyone means it: whoever reaches this port can take, renew and look at every resource under /locks, and can
	// release what they know the owner's name of. That is for a loopback address and a private network. Elsewhere
	// give Authorize instead. The resources of the middleware, and so the payments, are out of its reach either way.
	rest, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Anyone: true, Logger: logger})
	if err != nil {
		return nil, err
	}

	err = echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{
		Store:     store,
		Authorize: operators(config.adminPassword),
		Challenge: `Basic realm="rowlease", charset="UTF-8"`,
		Audit: func(ctx context.Context, release lockhttp.ForceRelease) {
			logger.InfoContext(ctx, "force release", "resource", release.Resource, "token", release.Token, "reason", release.Reason, "error", release.Err)
		},
		Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	return &application{echo: e, locker: locker, rest: rest, janitor: janitor, logger: logger, config: config}, nil
}

// operators lets in who has the password. Both sides are hashed, so that the comparison takes as long for every guess,
// whatever its length.
func operators(password string) echolock.Authorizer {
	user, want := sha256.Sum256([]byte(adminUser)), sha256.Sum256([]byte(password))
	return func(c echo.Context, _ lockhttp.Action, _ string) error {
		name, secret, _ := c.Request().BasicAuth()
		gotUser, got := sha256.Sum256([]byte(name)), sha256.Sum256([]byte(secret))
		if subtle.ConstantTimeCompare(user[:], gotUser[:])&subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return lockhttp.ErrUnauthenticated
		}
		return nil
	}
}
