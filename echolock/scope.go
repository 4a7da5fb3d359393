package echolock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// MethodAndRoute is the default [Config.KeyScope]: the request's method and the pattern of its route, such as POST and
// /orders/:id. A host with tenants appends the tenant that authentication found. Otherwise two tenants whose clients
// choose the same key would wait for each other, and one could hold, or try out, the keys of another:
//
//	KeyScope: func(c echo.Context) ([]string, error) {
//		scope, err := echolock.MethodAndRoute(c)
//		return append(scope, tenantOf(c)), err
//	},
//
// The pattern stands for all its parameters' values, and for all virtual hosts that have it: /t/:tenant/pay is one scope
// for every tenant, and with the lookup "param:id" the orders 7 of all shops are one key on /shops/:shop/orders/:id. What
// else tells keys apart is to be appended too, such as c.Param("shop"), or c.Request().Host where hosts are told apart. A
// part must not be empty.
func MethodAndRoute(c echo.Context) ([]string, error) {
	return []string{c.Request().Method, c.Path()}, nil
}

// isSafe tells the methods that change nothing (RFC 9110, 9.2.1).
func isSafe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// resource composes scope and key.
func (g *guard) resource(c echo.Context, key string) (string, error) {
	parts, err := g.KeyScope(c)
	if err != nil {
		return "", err
	}
	parts = append(parts[:len(parts):len(parts)], key) // the host may give the same slice each time
	resource, err := lockhttp.RequestResource(parts...)
	var broken *locks.InvalidError
	if !errors.As(err, &broken) {
		return resource, err
	}
	field := "key"
	if broken.Field != fmt.Sprintf("part %d", len(parts)) {
		field = "scope"
	}
	return "", malformed(field, "The request's "+field+" "+broken.Reason+".", err)
}

// owner names the lease's owner, differently for each request.
func (g *guard) owner(c echo.Context) (string, error) {
	if g.Owner == nil {
		return "", nil // the locker makes one
	}
	name, err := g.Owner(c)
	if err != nil || name == "" {
		return "", err
	}
	if len(name) > maxOwnerBytes {
		return "", malformed("owner", fmt.Sprintf("The request's owner must be at most %d bytes.", maxOwnerBytes), nil)
	}
	var broken *locks.InvalidError
	if err := locks.ValidateOwner(name); errors.As(err, &broken) {
		return "", malformed("owner", "The request's owner "+broken.Reason+".", err)
	}
	return name + "/" + rand.Text(), nil
}
