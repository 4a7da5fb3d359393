package echolock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func mount(t testing.TB, group *echo.Group, change ...func(*echolock.RoutesConfig)) *memstore.Store {
	t.Helper()
	store := memstore.New()
	config := echolock.RoutesConfig{Store: store, Anyone: true}
	for _, change := range change {
		change(&config)
	}
	if _, err := echolock.Mount(group, config); err != nil {
		t.Fatal(err)
	}
	return store
}

func send(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, status int, problem string) {
	t.Helper()
	var got struct{ Type string }
	_ = json.Unmarshal(w.Body.Bytes(), &got)
	if w.Code != status || got.Type != problem {
		t.Errorf("answer = %d %s, want %d %q", w.Code, w.Body, status, problem)
	}
}

func pass(next echo.HandlerFunc) echo.HandlerFunc { return next }

func TestOtherMethodsAndPathsAreEchosOwn(t *testing.T) {
	for name, row := range map[string]struct {
		group func(e *echo.Echo) *echo.Group
		wrong int
	}{
		"plain group":           {func(e *echo.Echo) *echo.Group { return e.Group("/locks") }, 405},
		"group with middleware": {func(e *echo.Echo) *echo.Group { return e.Group("/locks", pass) }, 404}, // echo's catch-all
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			store := mount(t, row.group(e))
			for _, c := range []struct {
				method, target string
				status         int
			}{
				{"PUT", "/locks/r", row.wrong},
				{"PATCH", "/locks/r", row.wrong},
				{"GET", "/locks/r/renew", row.wrong},
				{"POST", "/locks", 404},
				{"POST", "/locks/", 404},
				{"POST", "/locks/a/b", 404},
				{"POST", "/locks/a/", 404},
				{"POST", "/locks/a/renew/", 404},
			} {
				if w := send(e, c.method, c.target, `{"owner":"w1"}`); w.Code != c.status {
					t.Errorf("%s %s = %d, want %d", c.method, c.target, w.Code, c.status)
				}
			}
			if store.Rows() != 0 {
				t.Errorf("%d rows", store.Rows())
			}
		})
	}
}

// Routes of the host below the same prefix go on working, registered before or after ours.
func TestForeignRoutesOfTheSamePrefix(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, with := range [][]echo.MiddlewareFunc{nil, {pass}} {
			e := echo.New()
			say := func(text string) echo.HandlerFunc {
				return func(c echo.Context) error { return c.String(http.StatusOK, text) }
			}
			foreign := func() {
				e.GET("/locks/health", say("healthy"))
				e.PUT("/locks/:id", say("put"))
				e.GET("/locks/:id/history", say("history"))
				e.GET("/locks/files/*", say("file"))
			}
			if first {
				foreign()
			}
			mount(t, e.Group("/locks", with...))
			if !first {
				foreign()
			}
			for target, want := range map[string]string{
				"GET /locks/health": "healthy", "PUT /locks/x": "put", "GET /locks/x/history": "history", "GET /locks/files/a/b": "file",
			} {
				method, path, _ := strings.Cut(target, " ")
				if got := send(e, method, path, "").Body.String(); got != want {
					t.Errorf("first=%v middleware=%v: %s = %q, want %q", first, with != nil, target, got, want)
				}
			}
			wantStatus(t, send(e, "POST", "/locks/health", `{"owner":"w1"}`), 200, "") // ours: another method
			wantStatus(t, send(e, "GET", "/locks/x", ""), 404, lockhttp.TypeNotHeld)
		}
	}
}

func TestMountRefuses(t *testing.T) {
	store := memstore.New()
	authorize := func(echo.Context, lockhttp.Action, string) error { return nil }
	routes := func(group *echo.Group, config echolock.RoutesConfig) error {
		_, err := echolock.Mount(group, config)
		return err
	}
	group := func() *echo.Group { return echo.New().Group("/l") }
	for field, err := range map[string]error{
		"group":      routes(nil, echolock.RoutesConfig{Store: store, Anyone: true}),
		"group ":     echolock.MountAdmin(nil, echolock.AdminConfig{Store: store, Authorize: authorize}),
		"group  ":    routes(echo.New().Group("/a/*"), echolock.RoutesConfig{Store: store, Anyone: true}),
		"Authorize":  routes(group(), echolock.RoutesConfig{Store: store}),
		"Authorize ": echolock.MountAdmin(group(), echolock.AdminConfig{Store: store}),
		"Store":      routes(group(), echolock.RoutesConfig{Anyone: true}),
		"Store ":     echolock.MountAdmin(group(), echolock.AdminConfig{Store: struct{ locks.Store }{store}, Authorize: authorize}),
	} {
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	e := echo.New()
	if _, err := echolock.Mount(e.Group("/l"), echolock.RoutesConfig{Store: store}); err == nil || len(e.Routes()) != 0 {
		t.Errorf("err = %v, routes %v; want an error and no routes", err, e.Routes())
	}
}

func TestTheAuthorizerGetsTheEchoContext(t *testing.T) {
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-User"))
			return next(c)
		}
	})
	var asked []string
	store := mount(t, e.Group("/t/:tenant/locks"), func(c *echolock.RoutesConfig) {
		c.Anyone = false
		c.Authorize = func(c echo.Context, action lockhttp.Action, resource string) error {
			asked = append(asked, fmt.Sprintf("%s %s %s %s", c.Get("user"), c.Param("tenant"), action, resource))
			switch c.Get("user") {
			case "":
				return echo.ErrUnauthorized
			case "eve":
				return echo.ErrForbidden
			}
			return nil
		}
	})
	wantStatus(t, send(e, "POST", "/t/acme/locks/a%2Fb", `{"owner":"w1"}`), 401, lockhttp.TypeUnauthenticated)
	wantStatus(t, send(e, "POST", "/t/acme/locks/a%2Fb", `{"owner":"w1"}`, "X-User: eve"), 403, lockhttp.TypeForbidden)
	if store.Rows() != 0 {
		t.Error("a refused request made a row")
	}
	wantStatus(t, send(e, "POST", "/t/acme/locks/a%2Fb", `{"owner":"w1"}`, "X-User: ada"), 200, "")
	if want := "[ acme acquire a/b eve acme acquire a/b ada acme acquire a/b]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v, want %s", asked, want)
	}
}

func TestEchosBodyLimitIs413(t *testing.T) {
	e := echo.New()
	e.Use(middleware.BodyLimit("10B"))
	mount(t, e.Group("/locks"))
	r := httptest.NewRequest(http.MethodPost, "/locks/r", struct{ *strings.Reader }{strings.NewReader(`{"owner":"w1"}`)}) // length unknown
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = -1
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	wantStatus(t, w, 413, lockhttp.TypeTooLarge)
}

// The answers are written once, and an outer middleware sees their status.
func TestOuterMiddlewareSeesTheStatus(t *testing.T) {
	e := echo.New()
	var seen []string
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		seen = append(seen, "error handler")
		e.DefaultHTTPErrorHandler(err, c)
	}
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			seen = append(seen, fmt.Sprint(c.Response().Status, err))
			return err
		}
	})
	store := mount(t, e.Group("/locks"), func(c *echolock.RoutesConfig) { c.HeldStatus = http.StatusLocked })
	if _, err := store.Acquire(t.Context(), locks.Request{Resource: "r", Owner: "w1", Attempt: "1", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	w := send(e, "POST", "/locks/r", `{"owner":"w2"}`)
	wantStatus(t, w, 423, lockhttp.TypeHeld)
	if got, want := w.Header().Get("Content-Type"), "application/problem+json"; got != want {
		t.Errorf("Content-Type = %q, want %q", got, want)
	}
	if fmt.Sprint(seen) != "[423 <nil>]" {
		t.Errorf("seen = %q", seen)
	}
}

// echo's Timeout middleware takes the answer away while the handler still runs: the grant is not left behind.
func TestBehindEchosTimeout(t *testing.T) {
	e := echo.New()
	// Long enough for the request to come to the store on a busy machine too.
	e.Use(middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Second}))
	slow := &slowStore{Store: memstore.New(), granted: make(chan struct{})}
	api, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: slow, Anyone: true})
	if err != nil {
		t.Fatal(err)
	}
	if w := send(e, "POST", "/locks/r", `{"owner":"w1"}`); w.Code != 503 {
		t.Errorf("status = %d, want 503", w.Code)
	}
	<-slow.granted
	for range 1000 { // the release begins on the handler's goroutine, which Timeout left running
		if err := api.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := slow.Get(t.Context(), "r"); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the grant that nobody was told of is still there")
}

// Writers that cannot flush, or flush something else than they were given.
func TestAcquireBehindEchosWriters(t *testing.T) {
	for name, use := range map[string]echo.MiddlewareFunc{
		"none":              pass,
		"timeout":           middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: time.Minute}),
		"gzip":              middleware.Gzip(),
		"gzip above a size": middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1 << 20}),
		"dump":              middleware.BodyDump(func(echo.Context, []byte, []byte) {}),
	} {
		t.Run(name, func(t *testing.T) {
			e := echo.New()
			e.Use(use)
			store := mount(t, e.Group("/locks"))
			server := httptest.NewServer(e)
			t.Cleanup(server.Close)
			answer, err := http.Post(server.URL+"/locks/r", "application/json", strings.NewReader(`{"owner":"w1"}`))
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			var got struct{ Acquired bool }
			if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || answer.StatusCode != http.StatusOK || !got.Acquired {
				t.Errorf("answer = %d, %+v, %v", answer.StatusCode, got, err)
			}
			if _, err := store.Get(t.Context(), "r"); err != nil {
				t.Errorf("the grant is gone: %v", err)
			}
		})
	}
}

// slowStore grants long after the request's context has ended.
type slowStore struct {
	*memstore.Store
	granted chan struct{}
}

func (s *slowStore) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	defer close(s.granted)
	<-ctx.Done()
	return s.Store.Acquire(context.WithoutCancel(ctx), request)
}
