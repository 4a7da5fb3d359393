package echolock

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

var errPre = errors.New("echolock: the middleware must not be in Echo.Pre, where the route is not known yet: move it to Echo.Use, a group or a route")

// routed tells whether there is anything to guard: a request that matched no route passes.
func (g *guard) routed(c echo.Context) (bool, error) {
	e := c.Echo()
	if c.Path() != "" {
		// The header is of echo's answer 405, or 204 to OPTIONS.
		return c.Get(echo.ContextKeyHeaderAllow) == nil && (e == nil || g.known.isRoute(e, c.Request().Method, c.Path())), nil
	}
	// Either no route matched, or echo has not looked yet.
	if e == nil {
		return false, nil
	}
	r := c.Request()
	router, ok := e.Routers()[r.Host]
	if !ok {
		router = e.Router()
	}
	probe := e.NewContext(r, nil)
	router.Find(r.Method, echo.GetPath(r), probe)
	if probe.Path() == "" {
		return false, nil
	}
	c.Logger().Error(errPre)
	return false, &echo.HTTPError{
		Code: http.StatusInternalServerError, Message: http.StatusText(http.StatusInternalServerError), Internal: errPre,
	}
}

// methodPath is a route: its method and its pattern.
type methodPath struct{ method, path string }

// knownRoutes remembers which routes there are, since echo makes a new list of all of them each time that it is asked.
// Only what was found is kept: so there are no more than the routes, whatever clients ask for, and a route that is added
// later is found all the same.
type knownRoutes struct {
	found atomic.Pointer[map[methodPath]struct{}]
	mu    sync.Mutex // for those who add
}

// isRoute tells a match of a route from one of [echo.RouteNotFound], which has a path too: the host's own, and those that
// echo adds for Group.Use. It says no only where it is sure: where there is such a catch-all for the path and, on no
// virtual host, a route for the method. An unknown route, added to the router by hand, is guarded.
func (k *knownRoutes) isRoute(e *echo.Echo, method, path string) bool {
	asked := methodPath{method, path}
	if found := k.found.Load(); found != nil {
		if _, ok := (*found)[asked]; ok {
			return true
		}
	}
	catchAll := false
	look := func(all []*echo.Route) bool {
		for _, one := range all {
			switch {
			case one.Path != path:
			case one.Method == method:
				k.keep(asked)
				return true
			case one.Method == echo.RouteNotFound:
				catchAll = true
			}
		}
		return false
	}
	if look(e.Routes()) {
		return true
	}
	for _, router := range e.Routers() {
		if look(router.Routes()) {
			return true
		}
	}
	return !catchAll
}

func (k *knownRoutes) keep(found methodPath) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[methodPath]struct{}{found: {}}
	if before := k.found.Load(); before != nil {
		maps.Copy(all, *before)
	}
	k.found.Store(&all)
}
