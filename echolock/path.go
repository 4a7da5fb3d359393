package echolock

import (
	"errors"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks/lockhttp"
)

var (
	errNoRoute = errors.New("echolock: not a path of this route")
	errPath    = errors.New("echolock: path does not tell the resource")
)

// resourceOf returns the resource that the request's path names, unescaped exactly once.
//
// [echo.Context.Param] alone cannot tell: it is raw where the URL has a RawPath and decoded where it has none, so that it
// is a%2Fb for both a%2Fb and a%252Fb. So the route is matched against the escaped path again, and echo's word is the
// cross-check: where they differ, the path was rewritten after echo routed it, and one of the two is not what the host's
// own guards have seen. Where the route cannot be matched, echo's word counts only if it can be read in one way.
func resourceOf(c echo.Context) (string, error) {
	var param string
	if values := c.ParamValues(); len(values) > 0 {
		param = values[len(values)-1]
	}
	address := c.Request().URL
	path := address.EscapedPath()
	if address.RawPath != "" && address.RawPath != path { // only one of Path and RawPath was rewritten
		return "", errPath
	}
	resource, err := lockhttp.PathResource(path, c.Path())
	if err != nil {
		switch {
		case strings.Contains(param, "/"): // echo gives a parameter at a route's end all that follows
			return "", errNoRoute
		case address.RawPath != "" || strings.Contains(param, "%"):
			return "", errPath
		}
		return param, nil
	}
	if param == resource {
		return resource, nil
	}
	if plain, err := url.PathUnescape(param); address.RawPath == "" || err != nil || plain != resource {
		return "", errPath
	}
	return resource, nil
}

// hasWildcard tells a * that echo reads as one.
func hasWildcard(path string) bool { return strings.Contains(path, "*") }
