package echolock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestItGuardsInUseOnGroupsAndOnRoutes(t *testing.T) {
	for name, mount := range map[string]func(rig *guardRig){
		"Use":          func(rig *guardRig) { rig.Use(rig.guard()); rig.POST("/pay", created) },
		"group":        func(rig *guardRig) { rig.Group("", rig.guard()).POST("/pay", created) },
		"group's Use":  func(rig *guardRig) { g := rig.Group("/pay"); g.Use(rig.guard()); g.POST("", created) },
		"route":        func(rig *guardRig) { rig.pay(created) },
		"twice":        func(rig *guardRig) { m := rig.guard(); rig.Use(m); rig.POST("/pay", created, m, rig.guard()) },
		"virtual host": func(rig *guardRig) { rig.Host("example.com").POST("/pay", created, rig.guard()) },
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			mount(rig)
			wantCode(t, rig.post("a1"), http.StatusCreated)
			if tries := rig.store.calls.Load(); tries != 1 {
				t.Errorf("%d acquires for one request, want 1", tries)
			}
			rig.hold("a1")
			wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
			wantCode(t, rig.post("other"), http.StatusCreated)
		})
	}
}

func TestInPreItRefusesWithAClearErrorAndTheHandlerDoesNotRun(t *testing.T) {
	for name, mount := range map[string]func(rig *guardRig){
		"plain":        func(rig *guardRig) { rig.POST("/pay", mustNotRun(t)) },
		"virtual host": func(rig *guardRig) { rig.Host("example.com").POST("/pay", mustNotRun(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			var log strings.Builder
			rig.Echo.Logger.SetOutput(&log)
			rig.Pre(rig.guard())
			mount(rig)
			w := rig.post("a1")
			wantCode(t, w, http.StatusInternalServerError)
			if !strings.Contains(log.String(), "Echo.Pre") || strings.Contains(w.Body.String(), "Pre") {
				t.Errorf("log = %q, body = %s", log.String(), w.Body)
			}
			wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, "/nowhere", nil)), http.StatusNotFound)
		})
	}
}

func TestWhatMatchesNoRoutePasses(t *testing.T) {
	rig := newGuardRig(t)
	rig.Use(rig.guard()) // a key is required
	rig.POST("/pay", created)
	for name, test := range map[string]struct {
		request *http.Request
		status  int
	}{
		"404": {httptest.NewRequest(http.MethodPost, "/nowhere", nil), http.StatusNotFound},
		"405": {httptest.NewRequest(http.MethodPut, "/pay", nil), http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, rig.serve(test.request), test.status) })
	}
}

// echo's Group.Use adds routes of its own, so that a group's middleware sees what matches no route.
func TestWhatMatchesNoRouteOfAGroupPasses(t *testing.T) {
	gone := func(c echo.Context) error { return c.NoContent(http.StatusGone) }
	for name, mount := range map[string]func(rig *guardRig, g *echo.Group){
		"group's Use": func(rig *guardRig, g *echo.Group) { g.Use(rig.guard()) },
		"Use":         func(rig *guardRig, g *echo.Group) { rig.Use(rig.guard()); g.Use(middleware.Recover()) },
		"virtual host": func(rig *guardRig, _ *echo.Group) {
			rig.Host("example.com", rig.guard()).Group("/api").POST("/pay", created)
		},
		"own":        func(rig *guardRig, g *echo.Group) { g.Use(rig.guard()); g.RouteNotFound("/own/*", gone) },
		"everywhere": func(rig *guardRig, _ *echo.Group) { rig.Use(rig.guard()); rig.RouteNotFound("/*", gone) },
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			g := rig.Group("/api")
			mount(rig, g)
			g.POST("/pay", created)
			g.POST("", created)
			for _, key := range []string{"", "a1"} {
				for _, asked := range []string{"POST /api/nowhere", "PUT /api/pay", "PUT /api", "LOCK /api/pay", "POST /api/own/x", "PUT /api/pay"} {
					method, path, _ := strings.Cut(asked, " ")
					r := httptest.NewRequest(method, path, nil)
					if key != "" {
						r.Header.Set("Idempotency-Key", key)
					}
					switch w := rig.serve(r); w.Code {
					case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
					default:
						t.Errorf("%s: answer = %d %s", asked, w.Code, w.Body)
					}
				}
			}
			if tries := rig.store.calls.Load(); tries != 0 {
				t.Errorf("%d acquires for what matches no route", tries)
			}
			for range 2 { // the second time it is known
				wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, "/api/pay", nil)), http.StatusBadRequest)
			}
			if name != "virtual host" {
				// What a catch-all answered is guarded as soon as it is a route.
				g.PUT("/pay", created)
				wantCode(t, rig.serve(httptest.NewRequest(http.MethodPut, "/api/pay", nil)), http.StatusBadRequest)
				wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, "/api", nil)), http.StatusBadRequest)
			}
		})
	}
}

// A route that stands at the very pattern of a catch-all, and one that echo does not list.
func TestARouteBesideACatchAllIsGuarded(t *testing.T) {
	rig := newGuardRig(t)
	rig.Use(rig.guard())
	rig.RouteNotFound("/*", echo.NotFoundHandler)
	rig.POST("/*", created)
	rig.Router().Add(http.MethodPost, "/by-hand", created)
	for _, path := range []string{"/x", "/by-hand"} {
		wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, path, nil)), http.StatusBadRequest)
	}
	wantCode(t, rig.serve(httptest.NewRequest(http.MethodPut, "/x", nil)), http.StatusNotFound)
}

func TestSafeMethodsPassUnlessTheyAreGuarded(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
			rig := newGuardRig(t)
			rig.Add(method, "/pay", created, rig.guard(func(config *echolock.Config) { config.GuardSafeMethods = guarded }))
			want := http.StatusCreated
			if guarded {
				want = http.StatusBadRequest
			}
			wantCode(t, rig.serve(httptest.NewRequest(method, "/pay", nil)), want)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "LOCK"} {
			rig := newGuardRig(t)
			rig.Add(method, "/pay", created, rig.guard(func(config *echolock.Config) { config.GuardSafeMethods = guarded }))
			wantCode(t, rig.serve(httptest.NewRequest(method, "/pay", nil)), http.StatusBadRequest)
		}
	}
}

func TestMethodsAndRoutesHaveKeysOfTheirOwn(t *testing.T) {
	rig := newGuardRig(t)
	rig.PUT("/pay", created, rig.guard())
	rig.POST("/other", created, rig.guard())
	rig.pay(mustNotRun(t))
	rig.hold("a1")
	wantCode(t, rig.post("a1"), http.StatusLocked)
	for _, r := range []*http.Request{httptest.NewRequest(http.MethodPut, "/pay", nil), httptest.NewRequest(http.MethodPost, "/other", nil)} {
		r.Header.Set("Idempotency-Key", "a1")
		wantCode(t, rig.serve(r), http.StatusCreated)
	}
}

func TestSkipperAndBeforeFunc(t *testing.T) {
	before, skip := 0, true
	rig := newGuardRig(t)
	rig.pay(created, func(config *echolock.Config) {
		config.Skipper = func(echo.Context) bool { return skip }
		config.BeforeFunc = func(echo.Context) { before++ }
	})
	rig.hold("a1")
	wantCode(t, rig.post("a1"), http.StatusCreated)
	skip = false
	wantCode(t, rig.post("a1"), http.StatusLocked)
	if before != 1 {
		t.Errorf("BeforeFunc was called %d times, want once, not for what is skipped", before)
	}
}

func TestTwoMiddlewaresHoldTwoKeys(t *testing.T) {
	rig, other := newGuardRig(t), newGuardRig(t)
	byAccount := rig.guard(func(config *echolock.Config) {
		config.KeyFunc, config.KeyScope, config.ContextKey = keyOf("7", nil), scopeOf(nil, "account"), "account"
	})
	elsewhere := other.guard() // the same key in another store
	rig.POST("/pay", func(c echo.Context) error {
		account, _ := c.Get("account").(*locks.Lease)
		if account.Resource() != resource("account", "7") || echolock.LeaseFrom(c).Resource() != payResource("a1") {
			t.Errorf("leases: %q and %q", account.Resource(), echolock.LeaseFrom(c).Resource())
		}
		return created(c)
	}, byAccount, rig.guard(), elsewhere, byAccount)
	wantCode(t, rig.post("a1"), http.StatusCreated)
	if here, there := rig.store.calls.Load(), other.store.calls.Load(); here != 2 || there != 1 {
		t.Errorf("%d and %d acquires, want 2 and 1", here, there)
	}
}

func TestTimeoutOutsideKeepsTheLeaseUntilTheHandlerHasReturned(t *testing.T) {
	rig := newGuardRig(t)
	finish, entered := make(chan struct{}), make(chan echo.Context, 1)
	rig.POST("/pay", func(c echo.Context) error {
		ctx := c.Request().Context()
		entered <- c
		<-ctx.Done()
		<-finish // work that does not look at its context
		return ctx.Err()
	}, middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: 500 * time.Millisecond}), rig.guard())
	wantCode(t, rig.post("a1"), http.StatusServiceUnavailable) // while the handler runs
	stale := receive(t, entered, "the handler")
	if _, err := rig.store.Get(t.Context(), payResource("a1")); err != nil {
		t.Errorf("Get = %v, want the key held", err)
	}

	// echo has taken the Context back and gives it to others; what the guard does at its end must not reach them.
	released := make(chan struct{})
	rig.POST("/other", func(c echo.Context) error {
		if c != stale {
			return c.NoContent(http.StatusAccepted)
		}
		mine, status := c.Request(), c.Response().Status
		close(finish)
		lease, err := rig.locker.Acquire(t.Context(), payResource("a1")) // the guard has come to its end
		if err != nil {
			t.Error(err)
		} else {
			_ = lease.Release(t.Context())
		}
		time.Sleep(10 * time.Millisecond)
		if c.Request() != mine || c.Response().Status != status || len(c.Response().Header()) != 0 {
			t.Error("the guard of another request touched this one")
		}
		close(released)
		return c.NoContent(http.StatusNoContent)
	})
	for range 200 { // under the race detector a pool forgets now and then
		if w := rig.serve(httptest.NewRequest(http.MethodPost, "/other", nil)); w.Code == http.StatusNoContent {
			return
		}
	}
	close(finish)
	t.Log("echo never reused the Context: nothing was seen")
}

func TestTimeoutOutsideEndsAWait(t *testing.T) {
	rig := newGuardRig(t)
	rig.POST("/pay", mustNotRun(t), middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: 20 * time.Millisecond}),
		rig.guard(waiting(time.Minute)))
	rig.hold("a1")
	wantCode(t, rig.post("a1"), http.StatusServiceUnavailable)
}

// As documented, and why Timeout belongs outside.
func TestTimeoutInsideFreesTheKeyUnderARunningHandler(t *testing.T) {
	if raceDetector {
		t.Skip("a Timeout that is not the outermost races by itself, as echo's own comment on it says")
	}
	rig := newGuardRig(t)
	finish, finished := make(chan struct{}), make(chan struct{})
	rig.POST("/pay", func(echo.Context) error {
		defer close(finished)
		<-finish
		return nil
	}, rig.guard(), middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: 20 * time.Millisecond}))
	wantCode(t, rig.post("a1"), http.StatusServiceUnavailable)
	rig.wantFree("a1")
	close(finish)
	receive(t, finished, "the handler's end")
}

func TestContextTimeoutInEitherOrder(t *testing.T) {
	limit := middleware.ContextTimeout(time.Second)
	for name, order := range map[string]func(guard echo.MiddlewareFunc) []echo.MiddlewareFunc{
		"outside": func(guard echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{limit, guard} },
		"inside":  func(guard echo.MiddlewareFunc) []echo.MiddlewareFunc { return []echo.MiddlewareFunc{guard, limit} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						err := next(c)
						if ended := c.Request().Context().Err(); name == "inside" && ended != nil {
							t.Errorf("a context that has ended is left behind: %v", ended)
						}
						return err
					}
				})
				rig.POST("/pay", func(c echo.Context) error {
					<-c.Request().Context().Done()
					return c.Request().Context().Err()
				}, order(rig.guard())...)
				wantCode(t, rig.post("a1"), http.StatusServiceUnavailable)
				rig.wantFree("a1")
			})
		})
	}
}

func TestContextTimeoutOutsideAndAStoreThatHangsIs503WithRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.store.acquire = func(ctx context.Context, _ locks.Request) (locks.Lock, error) {
			<-ctx.Done()
			return locks.Lock{}, ctx.Err()
		}
		rig.POST("/pay", mustNotRun(t), middleware.ContextTimeout(time.Second), rig.guard())
		w := rig.post("a1")
		wantCode(t, w, http.StatusServiceUnavailable)
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	})
}

func TestTheErrorOfPreSaysWhatToDo(t *testing.T) {
	rig := newGuardRig(t)
	var seen error
	rig.HTTPErrorHandler = func(err error, _ echo.Context) { seen = err }
	rig.Pre(rig.guard())
	rig.POST("/pay", mustNotRun(t))
	rig.post("a1")
	var answer *echo.HTTPError
	if !errors.As(seen, &answer) || !strings.Contains(seen.Error(), "Echo.Use") {
		t.Errorf("error = %v", seen)
	}
}
