package echolock

import (
	"cmp"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
)

// Middleware returns a middleware that lets one request at a time through for each key, which it finds by lookup (see
// [Config.KeyLookup]), and has the defaults of [Config] otherwise. It panics on a lookup that it cannot read, and without
// a locker.
//
// For a key that is free it calls the next handler, under a lease.
// For a key that is held it answers "423 - Locked" with Retry-After.
// For a missing, empty, repeated, too long or unreadable key it answers "400 - Bad Request".
// For a store that fails it answers "503 - Service Unavailable" with Retry-After.
// GET, HEAD, OPTIONS and TRACE, and what matches no route, pass.
func Middleware(locker *locks.Locker, lookup string) echo.MiddlewareFunc {
	if lookup == "" {
		panic(setupError("KeyLookup", "is required"))
	}
	config := DefaultConfig
	config.Locker, config.KeyLookup = locker, lookup
	return MiddlewareWithConfig(config)
}

// MiddlewareWithConfig returns the middleware with this configuration, or panics with the error of
// [Config.ToMiddleware]. See [Middleware].
func MiddlewareWithConfig(config Config) echo.MiddlewareFunc {
	middleware, err := config.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return middleware
}

// ToMiddleware returns the middleware with this configuration, or [locks.ErrInvalid], which names the first field that
// breaks a rule. See [Middleware].
func (config Config) ToMiddleware() (echo.MiddlewareFunc, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	g := &guard{Config: config}
	if config.KeyFunc == nil {
		sources, err := parseLookup(config.KeyLookup, config.BodyLimit)
		if err != nil {
			return nil, err
		}
		g.sources = sources
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return g.serve(c, next) }
	}, nil
}

// guard is a middleware: its configuration, complete and checked.
type guard struct {
	Config
	sources []source
	known   knownRoutes
}

// serve answers one request.
func (g *guard) serve(c echo.Context, next echo.HandlerFunc) error {
	if g.Skipper != nil && g.Skipper(c) {
		return next(c)
	}
	if !g.GuardSafeMethods && isSafe(c.Request().Method) {
		return next(c)
	}
	switch ok, err := g.routed(c); {
	case err != nil:
		return err
	case !ok:
		return next(c)
	}
	if g.BeforeFunc != nil {
		g.BeforeFunc(c)
	}
	request, header := c.Request(), c.Response().Header()
	r, err := g.prepare(c)
	if over := request.Context().Err(); over != nil { // the body came slowly, and echo may have taken c back
		return setHeader(header, cmp.Or(err, unavailable(over)))
	}
	switch {
	case err != nil:
		return g.fail(c, header, err)
	case r == nil || holdingOf(c.Request().Context()).holds(g.Locker, r.resource):
		return next(c)
	}
	r.next = next
	return r.do()
}

// prepare finds out what the request is to hold: nil when it has no key and needs none.
func (g *guard) prepare(c echo.Context) (*run, error) {
	request := c.Request()
	key, err := g.key(c)
	if err != nil {
		return nil, err
	}
	if over := request.Context().Err(); over != nil { // no echo.Context for the host's functions any more
		return nil, unavailable(over)
	}
	if key == "" {
		if g.MissingKey == MissingKeyPasses {
			return nil, nil
		}
		return nil, g.missing()
	}
	r := &run{guard: g, c: c, key: key}
	if r.resource, err = g.resource(c, key); err != nil {
		return nil, err
	}
	if r.owner, err = g.owner(c); err != nil {
		return nil, err
	}
	if g.WaitTimeout > 0 { // with an unread body net/http would not notice that the client goes
		if _, err := PeekBody(c, g.BodyLimit); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// missing says where the key should have been.
func (g *guard) missing() error {
	if len(g.sources) == 1 {
		name := g.sources[0].name
		return malformed(name, name+" is required.", nil)
	}
	return malformed("key", "A key is required.", nil)
}
