package echolock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// notOver is a Config whose functions must not be called any more when the request's context has ended.
func notOver(t *testing.T) func(config *echolock.Config) {
	touched := func(name string, c echo.Context) {
		t.Errorf("%s got the echo.Context of a request that is over: %v", name, c.Request().URL)
	}
	return func(config *echolock.Config) {
		config.FailOpen = true
		config.DenyHandler = func(c echo.Context, _ *locks.HeldError) error { touched("DenyHandler", c); return nil }
		config.ErrorHandler = func(c echo.Context, _ error) error { touched("ErrorHandler", c); return nil }
		config.OnAcquired = func(c echo.Context, _ *locks.Lease) error { touched("OnAcquired", c); return nil }
	}
}

// Under the race detector: when a Timeout has answered, echo gives the echo.Context to the next request.
func TestAWaitThatATimeoutOutsideEndsTouchesNoEchoContext(t *testing.T) {
	for name, fails := range map[string]bool{"held": false, "store fails": true} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.hold("a1")
			if fails {
				rig.store.acquire = func(ctx context.Context, _ locks.Request) (locks.Lock, error) {
					<-ctx.Done()
					return locks.Lock{}, errStore
				}
			}
			rig.POST("/pay", mustNotRun(t), middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: 100 * time.Millisecond}),
				rig.guard(waiting(3*time.Second), notOver(t)))
			rig.POST("/other", func(c echo.Context) error {
				time.Sleep(time.Millisecond)
				return c.NoContent(http.StatusNoContent)
			})
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					wantCode(t, rig.post("a1"), http.StatusServiceUnavailable)
					for range 50 {
						wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, "/other", nil)), http.StatusNoContent)
					}
				})
			}
			clients.Wait()
		})
	}
}

func TestNoFunctionOfTheHostIsCalledWhenTheContextHasEnded(t *testing.T) {
	for name, change := range map[string]func(config *echolock.Config){
		"at once":      func(*echolock.Config) {},
		"without keys": func(config *echolock.Config) { config.KeyLookup = "header:None" },
		"form": func(config *echolock.Config) {
			config.KeyLookup = "form:key"
			config.KeyScope = func(echo.Context) ([]string, error) { t.Error("KeyScope was asked"); return []string{"x"}, nil }
		},
		"waiting": waiting(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.pay(mustNotRun(t), notOver(t), change)
			ctx, cancel := context.WithCancel(t.Context())
			r := ask("/pay", "", "Idempotency-Key: a1", "Content-Type: application/x-www-form-urlencoded").WithContext(ctx)
			r.ContentLength, r.Body = -1, io.NopCloser(io.MultiReader(strings.NewReader("key=a1"), endingReader{cancel}))
			if name == "at once" || name == "without keys" {
				cancel()
			}
			if w := rig.serve(r); w.Code != http.StatusServiceUnavailable && w.Code != http.StatusBadRequest {
				t.Errorf("answer = %d %s", w.Code, w.Body)
			}
		})
	}
}

// endingReader is the end of a body that came too late.
type endingReader struct{ cancel func() }

func (r endingReader) Read([]byte) (int, error) {
	r.cancel()
	return 0, io.EOF
}

// A handler that looks at no context goes on with an echo.Context that may be another's; ours is not to start it.
func TestAnEndWithinOnAcquiredKeepsTheHandlerFromRunning(t *testing.T) {
	rig := newGuardRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	rig.pay(mustNotRun(t), func(config *echolock.Config) {
		config.OnAcquired = func(echo.Context, *locks.Lease) error { cancel(); return nil }
	})
	rig.serve(payRequest("a1").WithContext(ctx))
	rig.wantFree("a1")
}

func TestALostLeaseOfARequestThatIsOverAsksNoErrorHandler(t *testing.T) {
	rig := newGuardRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	rig.pay(func(echo.Context) error {
		rig.store.Expire(payResource("a1"))
		cancel()
		return nil
	}, notOver(t), func(config *echolock.Config) { config.OnAcquired = nil })
	wantProblem(t, rig.serve(payRequest("a1").WithContext(ctx)), http.StatusServiceUnavailable, lockhttp.TypeLost)
}

// A grant whose way to the handler takes longer than what is left of the wait is given back, and is no fault of the store.
func TestAGrantThatComesAfterTheWaitIsGivenBackAnd423(t *testing.T) {
	for name, hangs := range map[string]int64{"in the wait": 0, "in its last look": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t, locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
					if event.Kind == locks.EventAcquired {
						time.Sleep(5 * time.Second)
					}
				})))
				rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
					if rig.store.calls.Load() <= hangs {
						<-ctx.Done()
						return locks.Lock{}, ctx.Err()
					}
					return rig.store.Store.Acquire(ctx, request)
				}
				rig.pay(mustNotRun(t), waiting(2*time.Second), func(config *echolock.Config) { config.FailOpen = true })
				wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
				rig.wantFree("a1")
			})
		})
	}
}
