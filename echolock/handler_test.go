package echolock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// However a handler ends, the key is held while it runs and free when it has returned.
func TestTheKeyIsFreeHoweverTheHandlerEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "receipt.txt")
	if err := os.WriteFile(file, []byte("paid"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := errors.New("card declined")
	for name, test := range map[string]struct {
		handler echo.HandlerFunc
		status  int
		err     error
	}{
		"String":    {created, http.StatusCreated, nil},
		"NoContent": {func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, http.StatusNoContent, nil},
		"nothing":   {func(echo.Context) error { return nil }, http.StatusOK, nil},
		"Redirect":  {func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/receipt") }, http.StatusSeeOther, nil},
		"File":      {func(c echo.Context) error { return c.File(file) }, http.StatusOK, nil},
		"Stream":    {func(c echo.Context) error { return c.Stream(http.StatusOK, "text/plain", strings.NewReader("paid")) }, http.StatusOK, nil},
		"error":     {func(echo.Context) error { return own }, http.StatusInternalServerError, own},
		"HTTPError": {func(echo.Context) error { return echo.ErrTeapot }, http.StatusTeapot, echo.ErrTeapot},
		"c.Error":   {func(c echo.Context) error { c.Error(echo.ErrTeapot); return nil }, http.StatusTeapot, nil},
		"ErrHeld":   {func(echo.Context) error { return locks.ErrHeld }, http.StatusInternalServerError, locks.ErrHeld},
		"net/http":  {echo.WrapHandler(http.NotFoundHandler()), http.StatusNotFound, nil},
		"SetRequest": {func(c echo.Context) error {
			c.SetRequest(httptest.NewRequest(http.MethodGet, "/x", nil))
			return created(c)
		}, http.StatusCreated, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					if c.Request().Header.Get("Meanwhile") != "" {
						return next(c)
					}
					before := c.Request()
					err := next(c)
					if err != test.err { //nolint:errorlint // the very same is wanted
						t.Errorf("error = %v, want the handler's own %v", err, test.err)
					}
					if c.Request() != before || c.Request().Context().Err() != nil {
						t.Error("the request's context ended with the lease")
					}
					return err
				}
			})
			rig.pay(func(c echo.Context) error {
				meanwhile := payRequest("a1")
				meanwhile.Header.Set("Meanwhile", "yes")
				wantProblem(t, rig.serve(meanwhile), http.StatusLocked, lockhttp.TypeHeld)
				return test.handler(c)
			})
			wantCode(t, rig.post("a1"), test.status)
			rig.wantFree("a1")
		})
	}
}

func TestAPanicFreesTheKeyWithRecoverBeforeAndAfterAndWithout(t *testing.T) {
	recoverer := middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
	for name, test := range map[string]struct {
		use    func(rig *guardRig, handler echo.HandlerFunc)
		panics bool
	}{
		"before":  {func(rig *guardRig, h echo.HandlerFunc) { rig.POST("/pay", h, recoverer, rig.guard()) }, false},
		"after":   {func(rig *guardRig, h echo.HandlerFunc) { rig.POST("/pay", h, rig.guard(), recoverer) }, false},
		"without": {func(rig *guardRig, h echo.HandlerFunc) { rig.POST("/pay", h, rig.guard()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			test.use(rig, func(echo.Context) error { panic("out of ink") })
			func() {
				defer func() {
					if p := recover(); (p != nil) != test.panics || (p != nil && p != "out of ink") {
						t.Errorf("panic = %v", p)
					}
				}()
				wantCode(t, rig.post("a1"), http.StatusInternalServerError)
			}()
			rig.wantFree("a1")
		})
		t.Run(name+", ErrAbortHandler", func(t *testing.T) {
			rig := newGuardRig(t)
			test.use(rig, func(echo.Context) error { panic(http.ErrAbortHandler) })
			func() {
				defer func() {
					if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
						t.Errorf("panic = %v, want http.ErrAbortHandler", p)
					}
				}()
				rig.post("a1")
			}()
			rig.wantFree("a1")
		})
	}
}

func TestAHijackedConnectionIsUnderTheLeaseUntilTheHandlerReturns(t *testing.T) {
	rig := newGuardRig(t)
	hijacked := make(chan context.Context, 1)
	rig.pay(func(c echo.Context) error {
		conn, buffer, err := c.Response().Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx := c.Request().Context()
		hijacked <- ctx
		<-ctx.Done()
		_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbye")
		return buffer.Flush()
	})
	server := rig.server()
	answers := make(chan *http.Response, 1)
	go func() {
		response, err := payTo(t.Context(), t, server, "a1", "")
		if err != nil {
			t.Error(err)
		}
		answers <- response
	}()
	ctx := receive(t, hijacked, "the handler")
	wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)

	// The server's Shutdown does not wait for hijacked connections; the locker's Close ends the work and waits for it.
	limit, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := rig.locker.Close(limit); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(ctx); !errors.Is(cause, locks.ErrClosed) {
		t.Errorf("cause = %v, want ErrClosed", cause)
	}
	rig.wantFree("a1")
	response := receive(t, answers, "the answer")
	if body, _ := io.ReadAll(response.Body); string(body) != "bye" {
		t.Errorf("body = %q", body)
	}
}

func TestAClientThatGoesEndsTheHandlersContextAndFreesTheKey(t *testing.T) {
	released := make(chan struct{})
	rig := newGuardRig(t, locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventReleased {
			close(released)
		}
	})))
	entered, left := make(chan struct{}), make(chan error, 1)
	rig.pay(func(c echo.Context) error {
		_, _ = io.Copy(io.Discard, c.Request().Body)
		close(entered)
		<-c.Request().Context().Done()
		left <- context.Cause(c.Request().Context())
		return c.Request().Context().Err()
	})
	server := rig.server()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = payTo(ctx, t, server, "a1", "{}") }()
	receive(t, entered, "the handler")
	cancel()
	if cause := receive(t, left, "the handler's end"); !errors.Is(cause, context.Canceled) {
		t.Errorf("cause = %v, want Canceled", cause)
	}
	receive(t, released, "the release") // by a store that fails on a context that has ended
	rig.wantFree("a1")
}

func TestADroppedStreamFreesTheKeyAndTheBodyTellsTheProblem(t *testing.T) {
	rig := newGuardRig(t)
	done := make(chan struct{})
	rig.GET("/events", func(c echo.Context) error {
		defer close(done)
		c.Response().Header().Set("Content-Type", "text/event-stream")
		c.Response().WriteHeader(http.StatusOK)
		_, _ = c.Response().Write([]byte("data: hello\n\n"))
		c.Response().Flush()
		<-c.Request().Context().Done()
		return nil
	}, rig.guard(func(config *echolock.Config) {
		config.GuardSafeMethods = true
		config.KeyLookup = "query:stream"
		config.KeyScope = func(echo.Context) ([]string, error) { return []string{"POST", "/pay"}, nil }
	}))
	server := rig.server()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/events?stream=s1", http.NoBody)
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	w := rig.serve(httptest.NewRequest(http.MethodGet, "/events?stream=s1", http.NoBody))
	wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld)
	cancel()
	receive(t, done, "the stream's end")
	waited, err := rig.locker.Acquire(t.Context(), payResource("s1"))
	if err != nil {
		t.Fatal(err)
	}
	_ = waited.Release(t.Context())
}

func TestTheHandlersHeadersStayAsTheyAre(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		c.SetCookie(&http.Cookie{Name: "a", Value: "1", Expires: time.Unix(0, 0)})
		c.SetCookie(&http.Cookie{Name: "b", Value: "2, 3"})
		return created(c)
	}, func(config *echolock.Config) { config.ExposeHeaders = true })
	w := rig.post("ä 1%")
	if cookies := w.Header().Values("Set-Cookie"); len(cookies) != 2 || !strings.Contains(cookies[0], "Thu, 01 Jan 1970") {
		t.Errorf("Set-Cookie = %q", cookies)
	}
	for name, want := range map[string]string{
		echolock.HeaderKey: "%C3%A4%201%25", echolock.HeaderToken: "1",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if waited, err := strconv.Atoi(w.Header().Get(echolock.HeaderWaited)); err != nil || waited < 0 {
		t.Errorf("waited = %q", w.Header().Get(echolock.HeaderWaited))
	}
	rig.hold("a1")
	w = rig.post("a1")
	if w.Header().Get(echolock.HeaderKey) != "a1" || w.Header().Get(echolock.HeaderWaited) == "" || w.Header().Get(echolock.HeaderToken) != "" {
		t.Errorf("headers of a refusal = %v", w.Header())
	}
}

func TestHeadersAreNotExposedUnlessAskedFor(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(created)
	w := rig.post("a1")
	if len(w.Header()) != 1 { // Content-Type
		t.Errorf("headers = %v", w.Header())
	}
}

func TestTheHandlerHasTheLease(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		lease := echolock.LeaseFrom(c)
		if lease == nil || lease.Resource() != payResource("a1") || lease.Token() < 1 || lease.Err() != nil {
			t.Errorf("lease = %+v", lease)
		}
		if c.Get("mine") != lease || echolock.LeaseFromContext(c.Request().Context()) != lease {
			t.Error("the three ways to the lease differ")
		}
		return created(c)
	}, func(config *echolock.Config) { config.ContextKey = "mine" })
	wantCode(t, rig.post("a1"), http.StatusCreated)
}
