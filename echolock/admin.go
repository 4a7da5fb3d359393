package echolock

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// AdminConfig configures [MountAdmin]. Store and Authorize are required; the rest has the defaults of
// [lockhttp.AdminConfig].
type AdminConfig struct {
	// Store keeps the leases. It must be a [locks.Lister] and a [locks.ForceReleaser]; without being a [locks.Queuer] it
	// cannot tell who waits, and without being a [locks.Sharer] not who shares.
	Store locks.Store
	// Authorize decides on every request. There is no way around it.
	Authorize Authorizer
	// Audit is told of every force release that went to the store, whatever came of it. The request's context has what
	// the host's middleware put there; the [echo.Context] is not to be had, since Audit may run after the answer, see
	// [lockhttp.AdminConfig].
	// Default: nobody is told.
	Audit func(ctx context.Context, release lockhttp.ForceRelease)
	// Challenge is the WWW-Authenticate header of a 401. Default: Bearer.
	Challenge string
	// CallLimit is how long one call to the store may take; then the answer is 503. Default: 5 s.
	CallLimit time.Duration
	// Logger gets the faults behind answers with 503. Default: nothing is logged.
	Logger *slog.Logger
}

// MountAdmin adds the routes of operators to the group, below whatever prefix it has:
//
//	GET, HEAD        ""                   list
//	GET, HEAD        /:resource           inspect, with every field
//	DELETE           /:resource           force release
//	GET, HEAD        /:resource/waiters   who waits for it
//	GET, HEAD        /:resource/holders   who shares it
//
// See [lockhttp.Admin] for what they take and answer. They see the resources of the middleware too. Without an
// authorizer, and on a store that cannot list and force, nothing is mounted: the error is [locks.ErrInvalid].
func MountAdmin(group *echo.Group, config AdminConfig) error {
	if group == nil {
		return errNoGroup
	}
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
		Store:     config.Store,
		Authorize: config.Authorize.adapt(),
		Audit:     config.Audit,
		Challenge: config.Challenge,
		CallLimit: config.CallLimit,
		Logger:    config.Logger,
	})
	if err != nil {
		return err
	}
	list := func(c echo.Context) error {
		admin.List(c.Response(), requestOf(c))
		return nil
	}
	return add(group, []route{
		{http.MethodGet, "", list},
		{http.MethodHead, "", list},
		{http.MethodGet, "/:resource", onResource(admin.Inspect)},
		{http.MethodHead, "/:resource", onResource(admin.Inspect)},
		{http.MethodDelete, "/:resource", onResource(admin.ForceRelease)},
		{http.MethodGet, "/:resource/waiters", onResource(admin.Waiters)},
		{http.MethodHead, "/:resource/waiters", onResource(admin.Waiters)},
		{http.MethodGet, "/:resource/holders", onResource(admin.Holders)},
		{http.MethodHead, "/:resource/holders", onResource(admin.Holders)},
	})
}
