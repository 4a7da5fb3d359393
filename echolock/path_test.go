package echolock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// encoded are segments and the resources that they name, each its own row.
var encoded = []struct{ segment, resource string }{
	{"job:42", "job:42"},
	{"a%2Fb", "a/b"},
	{"a%2fb", "a/b"},
	{"a%252Fb", "a%2Fb"},
	{"a%20b", "a b"},
	{"a+b", "a+b"},
	{"100%25", "100%"},
	{"100%25%2F", "100%/"},
	{"%E4%BD%A0", "你"},
	{"%e4%bd%a0", "你"},
	{"%e4%bd%a0%2F", "你/"},
	{"renew", "renew"},
	{"%2F", "/"},
	{"%3Aresource", ":resource"},
	{"*", "*"},
	{"a%3Fb%23c", "a?b#c"},
}

// Every way to mount, through every route, with every kind of name.
func TestResourcesUnderEveryMount(t *testing.T) {
	for name, row := range map[string]struct {
		mount  func(e *echo.Echo) *echo.Group
		prefix string
	}{
		"prefix":               {func(e *echo.Echo) *echo.Group { return e.Group("/locks") }, "/locks"},
		"no prefix":            {func(e *echo.Echo) *echo.Group { return e.Group("") }, ""},
		"deep prefix":          {func(e *echo.Echo) *echo.Group { return e.Group("/a").Group("/b/locks") }, "/a/b/locks"},
		"tenant":               {func(e *echo.Echo) *echo.Group { return e.Group("/t/:tenant/locks") }, "/t/acme/locks"},
		"same parameter":       {func(e *echo.Echo) *echo.Group { return e.Group("/:resource/locks") }, "/x/locks"},
		"parameter in segment": {func(e *echo.Echo) *echo.Group { return e.Group("/v:version/locks") }, "/v1/locks"},
		"escaped colon":        {func(e *echo.Echo) *echo.Group { return e.Group(`/v1\:x/locks`) }, "/v1:x/locks"},
		"group middleware":     {func(e *echo.Echo) *echo.Group { return e.Group("/locks", pass) }, "/locks"},
		"host middleware": {func(e *echo.Echo) *echo.Group {
			e.Use(middleware.Recover(), middleware.RequestID(), middleware.Gzip(), middleware.BodyLimit("1M"))
			return e.Group("/locks")
		}, "/locks"},
		"pre": {func(e *echo.Echo) *echo.Group {
			e.Pre(middleware.RemoveTrailingSlash())
			return e.Group("/locks")
		}, "/locks"},
		"rewritten before routing": {func(e *echo.Echo) *echo.Group {
			e.Pre(middleware.Rewrite(map[string]string{"/old/*": "/locks/$1"}))
			return e.Group("/locks")
		}, "/old"},
		"host": {func(e *echo.Echo) *echo.Group { return e.Host("example.com").Group("/locks") }, "/locks"},
		"parameters decoded by the host": {func(e *echo.Echo) *echo.Group {
			return e.Group("/locks", func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					values := c.ParamValues()
					if plain, err := url.PathUnescape(values[len(values)-1]); err == nil && c.Request().URL.RawPath != "" {
						values[len(values)-1] = plain
					}
					c.SetParamValues(values...)
					return next(c)
				}
			})
		}, "/locks"},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			store := mount(t, row.mount(e))
			for _, c := range encoded {
				path := row.prefix + "/" + c.segment
				w := send(e, "POST", path, `{"owner":"w1"}`)
				if name == "pre" && strings.HasSuffix(c.resource, "/") && w.Code != 200 {
					wantStatus(t, w, 400, lockhttp.TypeMalformed) // before echo 4.16 RemoveTrailingSlash cuts Path and leaves RawPath
					continue
				}
				if lock, err := store.Get(t.Context(), c.resource); w.Code != 200 || err != nil || lock.Owner != "w1" || store.Rows() != 1 {
					t.Errorf("POST %s = %d %s, %v, %d rows; want %q held", path, w.Code, w.Body, err, store.Rows(), c.resource)
					continue
				}
				wantStatus(t, send(e, "POST", path+"/renew", `{"owner":"w1","ttl_seconds":9}`), 200, "")
				wantStatus(t, send(e, "GET", path, ""), 200, "")
				wantStatus(t, send(e, "HEAD", path, ""), 200, "")
				wantStatus(t, send(e, "DELETE", path+"?owner=w2", ""), 403, lockhttp.TypeNotOwner)
				wantStatus(t, send(e, "DELETE", path+"?owner=w1", ""), 204, "")
				if store.Rows() != 0 {
					t.Errorf("DELETE %s left %d rows", path, store.Rows())
				}
			}
		})
	}
}

func TestRefusedNames(t *testing.T) {
	e := echo.New()
	mount(t, e.Group("/locks"))
	for segment, want := range map[string]struct {
		status  int
		problem string
	}{
		"%2E":                    {422, lockhttp.TypeInvalid},
		"%2E%2e":                 {422, lockhttp.TypeInvalid},
		"..":                     {422, lockhttp.TypeInvalid},
		"%00":                    {422, lockhttp.TypeInvalid},
		"%FF":                    {422, lockhttp.TypeInvalid},
		strings.Repeat("a", 513): {422, lockhttp.TypeInvalid},
		"http:x":                 {403, lockhttp.TypeReserved},
		"http%3Ax":               {403, lockhttp.TypeReserved},
	} {
		wantStatus(t, send(e, "POST", "/locks/"+segment, `{"owner":"w1"}`), want.status, want.problem)
		wantStatus(t, send(e, "GET", "/locks/"+segment, ""), want.status, want.problem)
		wantStatus(t, send(e, "POST", "/locks/"+segment+"/renew", `{"owner":"w1","ttl_seconds":9}`), want.status, want.problem)
		wantStatus(t, send(e, "DELETE", "/locks/"+segment+"?owner=w1", ""), want.status, want.problem)
	}
	wantStatus(t, send(e, "POST", "/locks//renew", `{"owner":"w1"}`), 422, lockhttp.TypeInvalid)
}

// What a host's middleware did to the path after echo routed it: the resource must still be beyond doubt.
func TestPathsRewrittenAfterRouting(t *testing.T) {
	for name, row := range map[string]struct {
		target  string
		rewrite func(r *http.Request)
		status  int
		held    string
	}{
		"prefix taken off":              {"/locks/job", func(r *http.Request) { r.URL.Path = "/job" }, 200, "job"},
		"prefix put before":             {"/locks/job", func(r *http.Request) { r.URL.Path = "/x/locks/job" }, 200, "job"},
		"prefix off, percent":           {"/locks/100%25", func(r *http.Request) { r.URL.Path = "/100%" }, 400, ""},
		"prefix off, raw path kept":     {"/locks/a%2Fb", func(r *http.Request) { r.URL.Path = "/a/b" }, 400, ""},
		"prefix off both":               {"/locks/a%2Fb", func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" }, 400, ""},
		"raw path lost":                 {"/locks/a%2Fb", func(r *http.Request) { r.URL.RawPath = "" }, 400, ""},
		"raw path lost, prefix off":     {"/locks/a%2Fb", func(r *http.Request) { r.URL = &url.URL{Path: "/x"} }, 400, ""},
		"another resource":              {"/locks/job", func(r *http.Request) { r.URL.Path = "/locks/other" }, 400, ""},
		"another resource, both":        {"/locks/a%2Fb", func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/locks/a/c", "/locks/a%2Fc" }, 400, ""},
		"another copy of the same path": {"/locks/a%2Fb", func(r *http.Request) { u := *r.URL; r.URL = &u }, 200, "a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					row.rewrite(c.Request())
					return next(c)
				}
			})
			store := mount(t, e.Group("/locks"))
			w := send(e, "POST", row.target, `{"owner":"w1"}`)
			if w.Code != row.status {
				t.Errorf("status = %d, want %d: %s", w.Code, row.status, w.Body)
			}
			if row.held == "" && store.Rows() != 0 {
				t.Errorf("a doubtful path made a row: %s", w.Body)
			} else if _, err := store.Get(t.Context(), row.held); row.held != "" && err != nil {
				t.Errorf("%q: %v", row.held, err)
			}
			if row.status == 400 {
				wantStatus(t, w, 400, lockhttp.TypeMalformed)
			}
		})
	}
}

// FuzzPath sends a resource through a real echo and looks which row it made.
func FuzzPath(f *testing.F) {
	for _, row := range encoded {
		f.Add(row.resource, row.segment)
	}
	f.Add("..", "..%2F")
	f.Add("a\x00", "%zz")
	f.Add(strings.Repeat("%2F", 300), "%25")
	f.Fuzz(func(t *testing.T, resource, segment string) {
		for _, prefix := range []string{"/locks/", "/t/x%2Fy/locks/"} {
			e := echo.New()
			store := mount(t, e.Group(map[string]string{"/locks/": "/locks", "/t/x%2Fy/locks/": "/t/:tenant/locks"}[prefix]))
			path := prefix + url.PathEscape(resource)
			w := send(e, "POST", path, `{"owner":"w1"}`)
			valid := locks.ValidateResource(resource) == nil && resource != "." && resource != ".."
			switch _, err := store.Get(context.Background(), resource); {
			case strings.HasPrefix(resource, lockhttp.RequestTag) && valid:
				if w.Code != 403 || store.Rows() != 0 {
					t.Fatalf("POST %s = %d, %d rows; want 403", path, w.Code, store.Rows())
				}
			case valid != (err == nil) || valid != (w.Code == 200):
				t.Fatalf("POST %s = %d %s; get %q: %v", path, w.Code, w.Body, resource, err)
			case valid:
				if w := send(e, "DELETE", path+"?owner=w1", ""); w.Code != 204 || store.Rows() != 0 {
					t.Fatalf("DELETE %s = %d %s, %d rows", path, w.Code, w.Body, store.Rows())
				}
			}
			// Any segment as a client may write it: what is held afterwards is that segment, unescaped once.
			address, err := url.ParseRequestURI(prefix + segment)
			if err != nil || address.RawQuery != "" || strings.ContainsAny(segment, "/?#") {
				return
			}
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"owner":"w1"}`))
			r.URL = address
			r.Header.Set("Content-Type", "application/json")
			w = httptest.NewRecorder()
			e.ServeHTTP(w, r)
			if w.Code != 200 {
				if store.Rows() != 0 {
					t.Fatalf("%s = %d, but there is a row", address, w.Code)
				}
				continue
			}
			once, err := url.PathUnescape(segment)
			if err != nil {
				t.Fatalf("%s was taken: %v", segment, err)
			}
			if _, err := store.Get(context.Background(), once); err != nil || store.Rows() != 1 {
				t.Fatalf("POST %s: %q is not held, %d rows", segment, once, store.Rows())
			}
		}
	})
}
