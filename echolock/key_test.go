package echolock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// keyRig guards POST /pay/:id, whose answer is the resource that was held, "none" without a lease.
func keyRig(t *testing.T, lookup string, change ...func(*echolock.Config)) *guardRig {
	rig := newGuardRig(t)
	changes := append([]func(*echolock.Config){func(config *echolock.Config) { config.KeyLookup = lookup }}, change...)
	rig.POST("/pay/:id", func(c echo.Context) error {
		if lease := echolock.LeaseFrom(c); lease != nil {
			return c.String(http.StatusOK, lease.Resource())
		}
		return c.String(http.StatusOK, "none")
	}, rig.guard(changes...))
	return rig
}

func resource(parts ...string) string {
	name, err := lockhttp.RequestResource(parts...)
	if err != nil {
		panic(err)
	}
	return name
}

// ask makes a POST with a form body ("" for none) and headers as "Name: value".
func ask(target, form string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(form))
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func TestEveryLookupFindsItsKey(t *testing.T) {
	for name, test := range map[string]struct {
		lookup  string
		request *http.Request
		key     string
	}{
		"header":                     {"header:idempotency-key", ask("/pay/1", "", "Idempotency-Key: a1"), "a1"},
		"header, quotes are kept":    {"header:Idempotency-Key", ask("/pay/1", "", `Idempotency-Key: "a1"`), `"a1"`},
		"header, commas are kept":    {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: a, b"), "a, b"},
		"param":                      {"param:id", ask("/pay/7", ""), "7"},
		"query":                      {"query:key", ask("/pay/1?key=a%26b&other=1", ""), "a&b"},
		"query, blanks are kept":     {"query:key", ask("/pay/1?key=+a+", ""), " a "},
		"form":                       {"form:key", ask("/pay/1", "x=1&key=a1"), "a1"},
		"form, not of the query":     {"form:key", ask("/pay/1?key=other", "key=a1"), "a1"},
		"cookie":                     {"cookie:cart", ask("/pay/1", "", "Cookie: x=1; cart=a1"), "a1"},
		"several, the second":        {"header:Idempotency-Key, query:key", ask("/pay/1?key=a1", ""), "a1"},
		"several, the first":         {"header:Idempotency-Key,query:key", ask("/pay/1", "", "Idempotency-Key: a1"), "a1"},
		"longest":                    {"query:key", ask("/pay/1?key="+strings.Repeat("k", 255), ""), strings.Repeat("k", 255)},
		"case tells keys apart":      {"query:key", ask("/pay/1?key=Foo", ""), "Foo"},
		"composition tells them too": {"query:key", ask("/pay/1?key=e%CC%81", ""), "e\u0301"},
	} {
		t.Run(name, func(t *testing.T) {
			w := keyRig(t, test.lookup).serve(test.request)
			if want := resource("POST", "/pay/:id", test.key); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("answer = %d %s, want %s", w.Code, w.Body, want)
			}
		})
	}
}

func TestKeysThatAreNotOneValueAre400(t *testing.T) {
	for name, test := range map[string]struct {
		lookup  string
		request *http.Request
		field   string
	}{
		"empty header":         {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: "), "Idempotency-Key"},
		"repeated header":      {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: a", "Idempotency-Key: b"), "Idempotency-Key"},
		"repeated, the same":   {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: a", "Idempotency-Key: a"), "Idempotency-Key"},
		"repeated, one empty":  {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: a", "Idempotency-Key: "), "Idempotency-Key"},
		"empty query":          {"query:key", ask("/pay/1?key=", ""), "key"},
		"repeated query":       {"query:key", ask("/pay/1?key=a&key=b", ""), "key"},
		"a second one hidden":  {"query:key", ask("/pay/1?key=a&key=%zz", ""), "key"},
		"empty form":           {"form:key", ask("/pay/1", "key="), "key"},
		"repeated form":        {"form:key", ask("/pay/1", "key=a&key=b"), "key"},
		"unreadable form":      {"form:key", ask("/pay/1", "key=%zz"), "key"},
		"empty cookie":         {"cookie:cart", ask("/pay/1", "", "Cookie: cart="), "cart"},
		"repeated cookie":      {"cookie:cart", ask("/pay/1", "", "Cookie: cart=a; cart=b"), "cart"},
		"two sources":          {"header:Idempotency-Key,query:key", ask("/pay/1?key=a", "", "Idempotency-Key: a"), "key"},
		"one byte too long":    {"query:key", ask("/pay/1?key="+strings.Repeat("k", 256), ""), "key"},
		"longer than an index": {"query:key", ask("/pay/1?key="+strings.Repeat("k", 10_000), ""), "key"},
		"NUL":                  {"query:key", ask("/pay/1?key=a%00", ""), "key"},
		"line end":             {"query:key", ask("/pay/1?key=a%0a", ""), "key"},
		"not UTF-8":            {"query:key", ask("/pay/1?key=%ff", ""), "key"},
		"header, not UTF-8":    {"header:Idempotency-Key", ask("/pay/1", "", "Idempotency-Key: \xff"), "key"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, policy := range []echolock.MissingKeyPolicy{echolock.MissingKeyRefused, echolock.MissingKeyPasses} {
				rig := keyRig(t, test.lookup, func(config *echolock.Config) { config.MissingKey = policy })
				w := rig.serve(test.request.Clone(t.Context()))
				if got := wantProblem(t, w, http.StatusBadRequest, lockhttp.TypeMalformed); got.Field != test.field {
					t.Errorf("field = %q, want %q", got.Field, test.field)
				}
				if rig.store.calls.Load() != 0 {
					t.Error("the store was asked")
				}
				if test.request.Body != nil && strings.HasPrefix(test.lookup, "form") {
					return // a body is for one request
				}
			}
		})
	}
}

func TestAMissingKeyIs400OrPassesAsConfigured(t *testing.T) {
	for name, test := range map[string]struct {
		lookup  string
		request *http.Request
		field   string
	}{
		"header":        {"header:Idempotency-Key", ask("/pay/1", ""), "Idempotency-Key"},
		"query":         {"query:key", ask("/pay/1?other=1", ""), "key"},
		"param":         {"param:order", ask("/pay/1", ""), "order"},
		"cookie":        {"cookie:cart", ask("/pay/1", "", "Cookie: x=1"), "cart"},
		"form":          {"form:key", ask("/pay/1", "x=1"), "key"},
		"another body":  {"form:key", ask("/pay/1", "key=a1", "Content-Type: text/plain"), "key"},
		"no body":       {"form:key", ask("/pay/1", ""), "key"},
		"every of them": {"header:A,query:b", ask("/pay/1", ""), "key"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "another body" {
				test.request.Header["Content-Type"] = []string{"text/plain"}
			}
			w := keyRig(t, test.lookup).serve(test.request)
			if got := wantProblem(t, w, http.StatusBadRequest, lockhttp.TypeMalformed); got.Field != test.field {
				t.Errorf("field = %q, want %q", got.Field, test.field)
			}
			passing := keyRig(t, test.lookup, func(config *echolock.Config) { config.MissingKey = echolock.MissingKeyPasses })
			if w := passing.serve(test.request); w.Code != http.StatusOK || w.Body.String() != "none" {
				t.Errorf("answer = %d %s, want it to pass", w.Code, w.Body)
			}
		})
	}
}

// The same segments as the REST API's: each names its own key, whatever way it is escaped.
func TestAParamIsUnescapedExactlyOnce(t *testing.T) {
	rig := keyRig(t, "param:id")
	rig.POST("/pay/:id/items/:item", func(c echo.Context) error { return c.String(http.StatusOK, echolock.LeaseFrom(c).Resource()) },
		rig.guard(func(config *echolock.Config) { config.KeyLookup = "param:id" }))
	for _, name := range encoded {
		for route, suffix := range map[string]string{"/pay/:id": "", "/pay/:id/items/:item": "/items/%2F"} {
			if strings.Contains(name.resource, "/") && suffix == "" {
				continue // echo's last parameter takes slashes anyway; the other route tells
			}
			w := rig.serve(ask("/pay/"+name.segment+suffix, ""))
			if want := resource("POST", route, name.resource); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("%s%s: answer = %d %s, want %s", name.segment, suffix, w.Code, w.Body, want)
			}
		}
	}
}

func TestAnEmptyParamIs400(t *testing.T) {
	rig := newGuardRig(t)
	rig.POST("/pay/:id/items", mustNotRun(t), rig.guard(func(config *echolock.Config) { config.KeyLookup = "param:id" }))
	wantProblem(t, rig.serve(ask("/pay//items", "")), http.StatusBadRequest, lockhttp.TypeMalformed)
}

func TestAParamOfARewrittenPathIs400(t *testing.T) {
	for name, rewrite := range map[string]func(address *url.URL){
		"Path only":    func(address *url.URL) { address.Path = "/other" },
		"RawPath only": func(address *url.URL) { address.RawPath = "/other%2F" },
		"both":         func(address *url.URL) { address.Path, address.RawPath = "/x", "" },
	} {
		t.Run(name, func(t *testing.T) {
			rig := keyRig(t, "param:id")
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					rewrite(c.Request().URL)
					return next(c)
				}
			})
			wantProblem(t, rig.serve(ask("/pay/a%2Fb", "")), http.StatusBadRequest, lockhttp.TypeMalformed)
		})
	}
}

func TestKeyFuncAndKeyScope(t *testing.T) {
	own := echo.NewHTTPError(http.StatusForbidden, "whose?")
	for name, test := range map[string]struct {
		change func(config *echolock.Config)
		status int
		want   string
	}{
		"KeyFunc":           {func(config *echolock.Config) { config.KeyFunc = keyOf("k", nil) }, 200, resource("POST", "/pay/:id", "k")},
		"KeyFunc, missing":  {func(config *echolock.Config) { config.KeyFunc = keyOf("", nil) }, 400, ""},
		"KeyFunc, too long": {func(config *echolock.Config) { config.KeyFunc = keyOf("12345", nil); config.MaxKeyBytes = 4 }, 400, ""},
		"KeyFunc, error":    {func(config *echolock.Config) { config.KeyFunc = keyOf("", own) }, 403, ""},
		"KeyScope, tenant": {func(config *echolock.Config) {
			config.KeyScope = func(c echo.Context) ([]string, error) {
				scope, err := echolock.MethodAndRoute(c)
				return append(scope, "acme"), err
			}
		}, 200, resource("POST", "/pay/:id", "acme", "k")},
		"KeyScope, one for all": {func(config *echolock.Config) { config.KeyScope = scopeOf(nil) }, 200, resource("k")},
		"KeyScope, empty part":  {func(config *echolock.Config) { config.KeyScope = scopeOf(nil, "a", "") }, 400, ""},
		"KeyScope, long":        {func(config *echolock.Config) { config.KeyScope = scopeOf(nil, strings.Repeat("x", 600)) }, 200, resource(strings.Repeat("x", 600), "k")},
		"KeyScope, error":       {func(config *echolock.Config) { config.KeyScope = scopeOf(own) }, 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rig := keyRig(t, "", func(config *echolock.Config) {
				config.KeyFunc = keyOf("k", nil)
				test.change(config)
			})
			w := rig.serve(ask("/pay/1", ""))
			if w.Code != test.status || (test.want != "" && w.Body.String() != test.want) {
				t.Errorf("answer = %d %s, want %d %s", w.Code, w.Body, test.status, test.want)
			}
		})
	}
}

func keyOf(key string, err error) func(echo.Context) (string, error) {
	return func(echo.Context) (string, error) { return key, err }
}

func scopeOf(err error, parts ...string) func(echo.Context) ([]string, error) {
	return func(echo.Context) ([]string, error) { return parts, err }
}

func TestAScopeSliceOfTheHostIsNotWrittenTo(t *testing.T) {
	shared := append(make([]string, 0, 8), "one scope")
	rig := keyRig(t, "query:key", func(config *echolock.Config) {
		config.KeyScope = func(echo.Context) ([]string, error) { return shared, nil }
	})
	rig.serve(ask("/pay/1?key=a1", ""))
	if full := shared[:8]; full[1] != "" {
		t.Errorf("the host's slice has %q behind its end", full[1])
	}
}

func TestOneOwnerDoesNotRunTwiceAtOnce(t *testing.T) {
	rig := newGuardRig(t)
	var owners []string
	rig.pay(func(c echo.Context) error {
		owners = append(owners, echolock.LeaseFrom(c).Owner())
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
		return created(c)
	}, func(config *echolock.Config) { config.Owner = keyOf("pod-7", nil) })
	wantCode(t, rig.post("a1"), http.StatusCreated)
	wantCode(t, rig.post("a1"), http.StatusCreated)
	if len(owners) != 2 || owners[0] == owners[1] || !strings.HasPrefix(owners[0], "pod-7/") {
		t.Errorf("owners = %q", owners)
	}
}

func TestAnOwnerThatBreaksARuleIs400(t *testing.T) {
	for name, owner := range map[string]string{"too long": strings.Repeat("o", 201), "control": "a\tb", "not UTF-8": "\xff"} {
		t.Run(name, func(t *testing.T) {
			rig := keyRig(t, "query:key", func(config *echolock.Config) { config.Owner = keyOf(owner, nil) })
			if got := wantProblem(t, rig.serve(ask("/pay/1?key=a", "")), http.StatusBadRequest, lockhttp.TypeMalformed); got.Field != "owner" {
				t.Errorf("field = %q", got.Field)
			}
		})
	}
	rig := keyRig(t, "query:key", func(config *echolock.Config) { config.Owner = keyOf("", echo.ErrForbidden) })
	wantCode(t, rig.serve(ask("/pay/1?key=a", "")), http.StatusForbidden)
}

func TestErrorHandlerTurnsRefusalsIntoItsOwn(t *testing.T) {
	var got error
	rig := keyRig(t, "query:key", func(config *echolock.Config) {
		config.ErrorHandler = func(c echo.Context, err error) error {
			got = err
			return c.JSON(http.StatusTeapot, "own")
		}
	})
	w := rig.serve(ask("/pay/1?key=", ""))
	var answer *echo.HTTPError
	if !errors.As(got, &answer) || answer.Code != http.StatusBadRequest {
		t.Errorf("ErrorHandler got %v", got)
	}
	if w.Code != http.StatusTeapot || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Retry-After") != "" {
		t.Errorf("answer = %d %v", w.Code, w.Header())
	}
	rig.store.acquire = func(context.Context, locks.Request) (locks.Lock, error) { return locks.Lock{}, locks.ErrBusy }
	wantCode(t, rig.serve(ask("/pay/1?key=a", "")), http.StatusTeapot)
	if !errors.Is(got, locks.ErrBusy) {
		t.Errorf("ErrorHandler got %v", got)
	}
}
