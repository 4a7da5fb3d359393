package echolock

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// source is one place where a key can be.
type source struct {
	name string
	// values returns every value that is there, empty ones too.
	values func(c echo.Context) ([]string, error)
}

// parseLookup reads a KeyLookup. echo's own CreateExtractors drops sources that it does not know without a word.
func parseLookup(lookup string, bodyLimit int64) ([]source, error) {
	var (
		sources []source
		seen    []string
	)
	for part := range strings.SplitSeq(lookup, ",") {
		kind, name, ok := strings.Cut(strings.TrimSpace(part), ":")
		if !ok || name == "" {
			return nil, setupError("KeyLookup", fmt.Sprintf("must be <source>:<name>, got %q", part))
		}
		found := source{name: name}
		switch kind {
		case "header":
			if !isToken(name) || http.CanonicalHeaderKey(name) == "Host" { // net/http moves Host elsewhere
				return nil, setupError("KeyLookup", fmt.Sprintf("must name a header that a request can have, got %q", part))
			}
			name = http.CanonicalHeaderKey(name)
			found.values = func(c echo.Context) ([]string, error) { return c.Request().Header[name], nil }
		case "param":
			if strings.ContainsAny(name, ":/") {
				return nil, setupError("KeyLookup", fmt.Sprintf("must name a parameter without colon or slash, got %q", part))
			}
			found.values = func(c echo.Context) ([]string, error) { return paramValues(c, name) }
		case "query":
			found.values = func(c echo.Context) ([]string, error) { return queryValues(c, name) }
		case "form":
			found.values = func(c echo.Context) ([]string, error) { return formValues(c, name, bodyLimit) }
		case "cookie":
			if !isToken(name) {
				return nil, setupError("KeyLookup", fmt.Sprintf("must name a cookie that a request can have, got %q", part))
			}
			found.values = func(c echo.Context) ([]string, error) { return cookieValues(c, name), nil }
		default:
			return nil, setupError("KeyLookup", fmt.Sprintf("must have header, param, query, form or cookie as its source, got %q", part))
		}
		if slices.Contains(seen, kind+":"+name) {
			return nil, setupError("KeyLookup", fmt.Sprintf("must name each source once, got %q again", part))
		}
		seen = append(seen, kind+":"+name)
		sources = append(sources, found)
	}
	return sources, nil
}

// key returns the request's key, "" when it has none.
func (g *guard) key(c echo.Context) (string, error) {
	if g.KeyFunc != nil {
		key, err := g.KeyFunc(c)
		if err != nil {
			return "", err
		}
		return key, g.checkKey("key", key)
	}
	var key, name string
	for _, source := range g.sources {
		values, err := source.values(c)
		if err != nil {
			return "", err
		}
		for _, value := range values {
			switch {
			case value == "":
				return "", malformed(source.name, source.name+" must not be empty.", nil)
			case name != "": // which of them should it be? The client must say.
				return "", malformed(source.name, "There must be one key.", nil)
			}
			key, name = value, source.name
		}
	}
	return key, g.checkKey(name, key)
}

func (g *guard) checkKey(name, key string) error {
	if len(key) > g.MaxKeyBytes {
		return malformed(name, fmt.Sprintf("%s must be at most %d bytes.", name, g.MaxKeyBytes), nil)
	}
	return nil
}

// paramValues returns a path parameter unescaped exactly once. echo's parameters are raw where the URL has a RawPath, and
// decoded where it has none: a%2Fb is what it says of both a%2Fb and a%252Fb.
func paramValues(c echo.Context, name string) ([]string, error) {
	index, all := slices.Index(c.ParamNames(), name), c.ParamValues()
	if index < 0 || index >= len(all) {
		return nil, nil
	}
	value, address := all[index], c.Request().URL
	rewritten := address.RawPath != "" && address.RawPath != address.EscapedPath() // one of the two was, not the other
	if !rewritten && strings.Contains(echo.GetPath(c.Request()), value) {          // echo saw this very path
		if address.RawPath == "" {
			return []string{value}, nil
		}
		if plain, err := url.PathUnescape(value); err == nil {
			return []string{plain}, nil
		}
	}
	return nil, malformed(name, "The path does not tell "+name+" without doubt: it was rewritten, or escaped wrongly.", nil)
}

// queryValues is strict where echo's QueryParams is not: that leaves out what it cannot read, a second key among it.
func queryValues(c echo.Context, name string) ([]string, error) {
	raw := c.Request().URL.RawQuery
	if raw == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, malformed(name, "The query cannot be read.", err)
	}
	return values[name], nil
}

func cookieValues(c echo.Context, name string) []string {
	if len(c.Request().Header["Cookie"]) == 0 {
		return nil
	}
	var values []string
	for _, cookie := range c.Request().CookiesNamed(name) {
		values = append(values, cookie.Value)
	}
	return values
}

// isToken tells a name that headers and cookies can have (RFC 9110, 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
