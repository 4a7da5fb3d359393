package echolock

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
)

// holdingKey is where a request's context has what the request holds.
type holdingKey struct{}

// holding is a lease that a request holds, and those it held before that one.
type holding struct {
	lease  *locks.Lease
	locker *locks.Locker
	tx     locks.Tx // nil without Config.Tx
	outer  *holding
}

// LeaseFrom returns the lease that the middleware took for this request, or nil when there is none: the request was
// skipped, or had no key, or ran without a lease by [Config.FailOpen]. Under several middlewares it is the innermost
// lease; [Config.ContextKey] tells them apart. It is for the handler: outside the middleware, after the handler, only the
// ContextKey has the lease, which is freed by then.
func LeaseFrom(c echo.Context) *locks.Lease { return LeaseFromContext(c.Request().Context()) }

// LeaseFromContext is [LeaseFrom] for code that only has the request's context, or one that descends from it.
func LeaseFromContext(ctx context.Context) *locks.Lease {
	if held := holdingOf(ctx); held != nil {
		return held.lease
	}
	return nil
}

func holdingOf(ctx context.Context) *holding {
	held, _ := ctx.Value(holdingKey{}).(*holding)
	return held
}

// holds tells a request that holds the resource already, since the middleware was registered twice for it.
func (h *holding) holds(locker *locks.Locker, resource string) bool {
	for ; h != nil; h = h.outer {
		if h.locker == locker && h.lease.Resource() == resource {
			return true
		}
	}
	return false
}
