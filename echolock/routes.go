package echolock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// Authorizer decides whether a request may do this with the resource: nil is yes. An error is 403, and 401 when it is
// [lockhttp.ErrUnauthenticated] or an [echo.HTTPError] of that status; its text is not shown. The resource is the decoded
// one, so that no way of escaping it dodges a rule; the admin routes ask with the prefix of a list, and with "" where the
// name is no valid one. The request's body must be left unread.
type Authorizer func(c echo.Context, action lockhttp.Action, resource string) error

// RoutesConfig configures [Mount]. Store and one of Authorize and Anyone are required; the rest has the defaults of
// [lockhttp.Config].
type RoutesConfig struct {
	// Store keeps the leases.
	Store locks.Store
	// Authorize decides on every request.
	Authorize Authorizer
	// Anyone says, in so many words, that whoever reaches the routes may acquire, renew, release and look at every
	// resource. It takes the place of Authorize.
	Anyone bool
	// Challenge is the WWW-Authenticate header of a 401. Default: Bearer.
	Challenge string
	// HeldStatus is the status of the answer "held by another owner": 200, 423 or 409. Default: 200.
	HeldStatus int
	// DefaultTTL is the lease's length where a request names none. Default: 30 s.
	DefaultTTL time.Duration
	// MinTTL and MaxTTL bound the lease that a request may ask for. Defaults: 1 s and 24 h.
	MinTTL, MaxTTL time.Duration
	// MaxWait is the longest that a request may wait while the resource is held; [lockhttp.NoWait] for none. Default: 60 s.
	MaxWait time.Duration
	// MaxWaiters is how many may wait for one resource when a request comes that would wait too. Default: 0, any number.
	MaxWaiters int
	// CallLimit is how long one call to the store may take; then the answer is 503. Default: 5 s.
	CallLimit time.Duration
	// ShowHolders shows owner, token and metadata of every lease to everybody who may ask for it. Default: only to
	// requests that name the owner.
	ShowHolders bool
	// Logger gets the faults behind answers with 503. Default: nothing is logged.
	Logger *slog.Logger
}

// Mount adds the REST API of leases to the group, below whatever prefix it has, parameters included:
//
//	POST             /:resource           acquire
//	GET, HEAD        /:resource           get
//	DELETE           /:resource           release
//	POST             /:resource/renew     renew
//	GET, HEAD        /:resource/waiters   who waits for it
//	GET, HEAD        /:resource/holders   who shares it
//
// See [lockhttp.API] for what they take and answer. The answers are written, problems too, and do not come as errors to
// the host's middleware; other methods and paths are echo's own 405 and 404 (a group with middleware of its own says 404
// for both). Call Close of the API that it returns when the server begins to shut down, which ends waits, and after that again.
//
// The error is [locks.ErrInvalid] and names the field. It comes before anything is mounted, but for a prefix with a *, which
// echo tells only of a route that is already there: it cannot be served, since echo does not tell what stands behind a *.
func Mount(group *echo.Group, config RoutesConfig) (*lockhttp.API, error) {
	if group == nil {
		return nil, errNoGroup
	}
	api, err := lockhttp.New(lockhttp.Config{
		Store:       config.Store,
		Authorize:   config.Authorize.adapt(),
		Anyone:      config.Anyone,
		Challenge:   config.Challenge,
		HeldStatus:  config.HeldStatus,
		DefaultTTL:  config.DefaultTTL,
		MinTTL:      config.MinTTL,
		MaxTTL:      config.MaxTTL,
		MaxWait:     config.MaxWait,
		MaxWaiters:  config.MaxWaiters,
		CallLimit:   config.CallLimit,
		ShowHolders: config.ShowHolders,
		Logger:      config.Logger,
	})
	if err != nil {
		return nil, err
	}
	err = add(group, []route{
		{http.MethodPost, "/:resource", onResource(api.Acquire)},
		{http.MethodGet, "/:resource", onResource(api.Get)},
		{http.MethodHead, "/:resource", onResource(api.Get)},
		{http.MethodDelete, "/:resource", onResource(api.Release)},
		{http.MethodPost, "/:resource/renew", onResource(api.Renew)},
		{http.MethodGet, "/:resource/waiters", onResource(api.Waiters)},
		{http.MethodHead, "/:resource/waiters", onResource(api.Waiters)},
		{http.MethodGet, "/:resource/holders", onResource(api.Holders)},
		{http.MethodHead, "/:resource/holders", onResource(api.Holders)},
	})
	if err != nil {
		return nil, err
	}
	return api, nil
}

type route struct {
	method, path string
	handler      echo.HandlerFunc
}

var errNoGroup error = &locks.InvalidError{Field: "group", Reason: "is required"}

func add(group *echo.Group, routes []route) error {
	for _, route := range routes {
		added := group.Add(route.method, route.path, route.handler)
		if hasWildcard(added.Path) { // only now echo tells the group's prefix
			return &locks.InvalidError{Field: "group", Reason: "must not have a * in its prefix, got " + added.Path}
		}
	}
	return nil
}

// onResource adapts a handler of lockhttp.
func onResource(serve func(w http.ResponseWriter, r *http.Request, resource string)) echo.HandlerFunc {
	return func(c echo.Context) error {
		resource, err := resourceOf(c)
		switch {
		case errors.Is(err, errNoRoute):
			return echo.NewHTTPError(http.StatusNotFound)
		case err != nil:
			return lockhttp.PathProblem().Write(c.Response(), c.Request())
		}
		serve(hostWriter{c.Response()}, requestOf(c), resource)
		return nil
	}
}

// hostWriter tells whether a flush came through: echo's own passes over errors, and panics where the writer cannot flush
// (that of echo's Timeout).
type hostWriter struct{ *echo.Response }

func (w hostWriter) FlushError() error { return http.NewResponseController(w.Writer).Flush() }

// contextKey is where a request's context has the echo.Context, for its authorizer. Nobody else may look: echo takes the
// echo.Context back when the handler returns.
type contextKey struct{}

func requestOf(c echo.Context) *http.Request {
	r := c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, c))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = hostBody{r.Body}
	}
	return r
}

func (a Authorizer) adapt() lockhttp.Authorizer {
	if a == nil {
		return nil
	}
	return func(r *http.Request, action lockhttp.Action, resource string) error {
		c, _ := r.Context().Value(contextKey{}).(echo.Context)
		err := a(c, action, resource)
		var answer *echo.HTTPError
		if errors.As(err, &answer) && answer.Code == http.StatusUnauthorized {
			return errors.Join(lockhttp.ErrUnauthenticated, err)
		}
		return err
	}
}

// hostBody says "too large" in the words of net/http: a limit of echo's BodyLimit comes out of Read as an
// [echo.HTTPError].
type hostBody struct{ io.ReadCloser }

func (b hostBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var answer *echo.HTTPError
	if errors.As(err, &answer) && answer.Code == http.StatusRequestEntityTooLarge {
		err = &http.MaxBytesError{}
	}
	return n, err
}
