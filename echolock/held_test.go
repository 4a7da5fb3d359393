package echolock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestAHeldKeyIs423WithRetryAfterAndItsHolderRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t))
		lease := rig.hold("a1", locks.WithOwner("somebody"), locks.WithTTL(10*time.Second), locks.WithMetadata([]byte(`{"secret":1}`)))
		time.Sleep(300 * time.Millisecond) // so that 9.7 s are left, which are 10 for a client

		w := rig.post("a1")
		got := wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld)
		if w.Header().Get("Retry-After") != "10" || got.RetryAfter != 10 {
			t.Errorf("Retry-After = %q, retry_after_seconds = %d, want 10", w.Header().Get("Retry-After"), got.RetryAfter)
		}
		if got.Acquired == nil || *got.Acquired || got.Holder == nil {
			t.Fatalf("body = %s, want acquired false and a holder", w.Body)
		}
		held := lease.Lock()
		if got.Holder.AcquiredAt.Sub(held.AcquiredAt).Abs() > time.Microsecond || got.Holder.ExpiresAt.Sub(held.ExpiresAt).Abs() > time.Microsecond {
			t.Errorf("holder = %+v, want from %v to %v", got.Holder, held.AcquiredAt, held.ExpiresAt)
		}
		for _, secret := range []string{"somebody", "secret", "token", "owner"} {
			if strings.Contains(w.Body.String(), secret) {
				t.Errorf("body = %s, tells %q", w.Body, secret)
			}
		}
	})
}

func TestRetryAfterIsAtLeastOneAndAnInteger(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(mustNotRun(t))
	for _, left := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond} {
		rig.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
			if left == 0 {
				return locks.Lock{}, locks.Held(request.Resource, nil) // the holder is not known
			}
			return locks.Lock{}, locks.Held(request.Resource, &locks.Lock{Remaining: left})
		}
		w := rig.post("a1")
		got := wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld)
		want := 1
		if left > time.Second {
			want = 2
		}
		if seconds, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || seconds != want {
			t.Errorf("%v left: Retry-After = %q, want %d", left, w.Header().Get("Retry-After"), want)
		}
		if (got.Holder == nil) != (left == 0) {
			t.Errorf("%v left: holder = %v", left, got.Holder)
		}
	}
}

func TestTheHeldStatusCanBeChosen(t *testing.T) {
	for _, status := range []int{http.StatusLocked, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), func(config *echolock.Config) { config.HeldStatus = status })
		rig.hold("a1")
		w := rig.post("a1")
		wantProblem(t, w, status, lockhttp.TypeHeld)
		if w.Header().Get("Retry-After") == "" {
			t.Errorf("%d: no Retry-After", status)
		}
	}
}

func TestHEADOfAHeldKeyIs423WithoutABody(t *testing.T) {
	rig := newGuardRig(t)
	rig.HEAD("/pay", mustNotRun(t), rig.guard(func(config *echolock.Config) {
		config.GuardSafeMethods = true
		config.KeyScope = func(echo.Context) ([]string, error) { return []string{"POST", "/pay"}, nil }
	}))
	rig.hold("a1")
	server := rig.server()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/pay", http.NoBody)
	r.Header.Set("Idempotency-Key", "a1")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusLocked || response.ContentLength > 0 || response.Header.Get("Retry-After") == "" {
		t.Errorf("answer = %d with %d bytes and %v", response.StatusCode, response.ContentLength, response.Header)
	}
	w := rig.serve(func() *http.Request {
		r := payRequest("a1")
		r.Method = http.MethodHead
		return r
	}())
	if w.Code != http.StatusLocked || w.Body.Len() > 0 {
		t.Errorf("answer = %d %q, want 423 and no body", w.Code, w.Body)
	}
}

func TestTheErrorIsABareHTTPErrorThatIsErrHeldAndIsHandledOnce(t *testing.T) {
	rig := newGuardRig(t)
	var handled, seen []error
	def := rig.HTTPErrorHandler
	rig.HTTPErrorHandler = func(err error, c echo.Context) {
		handled = append(handled, err)
		def(err, c)
	}
	rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // a logger, a counter
		return func(c echo.Context) error {
			err := next(c)
			seen = append(seen, err)
			return err
		}
	})
	rig.pay(mustNotRun(t))
	rig.hold("a1")
	rig.post("a1")
	wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
	if len(handled) != 2 || len(seen) != 2 {
		t.Fatalf("2 requests: %d errors handled, %d seen", len(handled), len(seen))
	}
	first, ok := seen[0].(*echo.HTTPError)    //nolint:errorlint // bare is what is wanted
	second, also := seen[1].(*echo.HTTPError) //nolint:errorlint // here too
	if !ok || !also || first == second || first == echo.ErrLocked {
		t.Fatalf("errors = %#v and %#v, want two fresh HTTPErrors", seen[0], seen[1])
	}
	var held *locks.HeldError
	if first.Code != http.StatusLocked || !errors.Is(first, locks.ErrHeld) || !errors.As(error(first), &held) || held.Resource != payResource("a1") {
		t.Errorf("error = %v", first)
	}
	if _, ok := first.Message.(lockhttp.Problem); !ok {
		t.Errorf("Message = %T, want a lockhttp.Problem", first.Message)
	}
}

func TestAHostsOwnErrorHandlerKnowsTheStatus(t *testing.T) {
	rig := newGuardRig(t)
	rig.HTTPErrorHandler = func(err error, c echo.Context) {
		var answer *echo.HTTPError
		if !errors.As(err, &answer) {
			t.Errorf("error = %v", err)
		}
		_ = c.JSON(answer.Code, map[string]any{"own": errors.Is(err, locks.ErrHeld)})
	}
	rig.pay(mustNotRun(t))
	rig.hold("a1")
	if w := rig.post("a1"); w.Code != http.StatusLocked || !strings.Contains(w.Body.String(), `"own":true`) {
		t.Errorf("answer = %d %s", w.Code, w.Body)
	}
}

func TestInDebugModeTheProblemStaysAProblem(t *testing.T) {
	rig := newGuardRig(t)
	rig.Debug = true
	rig.pay(mustNotRun(t))
	rig.hold("a1")
	wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
}

func TestDenyHandlerGetsTheHolderAndAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(c echo.Context, held *locks.HeldError) error
		check  func(w *httptest.ResponseRecorder)
	}{
		"in its own words": {
			func(c echo.Context, held *locks.HeldError) error {
				return c.JSON(http.StatusConflict, map[string]any{"until": held.Holder.ExpiresAt})
			},
			func(w *httptest.ResponseRecorder) {
				if w.Code != http.StatusConflict || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), "until") {
					t.Errorf("answer = %d %v %s", w.Code, w.Header(), w.Body)
				}
			},
		},
		"as a problem": {
			func(_ echo.Context, held *locks.HeldError) error {
				return echolock.ProblemError(lockhttp.Held(held, http.StatusConflict), held)
			},
			func(w *httptest.ResponseRecorder) { wantProblem(t, w, http.StatusConflict, lockhttp.TypeHeld) },
		},
		"with an error of its own": {
			func(echo.Context, *locks.HeldError) error { return echo.NewHTTPError(http.StatusTeapot, "busy") },
			func(w *httptest.ResponseRecorder) { wantCode(t, w, http.StatusTeapot) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.pay(mustNotRun(t), func(config *echolock.Config) {
				config.DenyHandler = test.answer
				config.ErrorHandler = func(_ echo.Context, err error) error {
					t.Errorf("ErrorHandler was asked about %v", err)
					return err
				}
			})
			rig.hold("a1")
			test.check(rig.post("a1"))
		})
	}
}

func TestStoreFaultsAre503WithRetryAfterAndNeverHeld(t *testing.T) {
	for name, fault := range map[string]struct {
		err error
		urn string
	}{
		"connection lost": {errStore, lockhttp.TypeUnavailable},
		"busy":            {locks.ErrBusy, lockhttp.TypeBusy},
		"deadline":        {fmt.Errorf("pool: %w", context.DeadlineExceeded), lockhttp.TypeUnavailable},
		"not invalid":     {&locks.InvalidError{Field: "ttl", Reason: "is refused by this store"}, lockhttp.TypeUnavailable},
		"not lost":        {&locks.LostError{Reason: locks.ErrExpired}, lockhttp.TypeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t, locks.WithReleaseLimit(time.Millisecond))
			rig.store.acquire = func(context.Context, locks.Request) (locks.Lock, error) { return locks.Lock{}, fault.err }
			rig.pay(mustNotRun(t))
			w := rig.post("a1")
			wantProblem(t, w, http.StatusServiceUnavailable, fault.urn)
			if w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "reset") {
				t.Errorf("answer = %v %s", w.Header(), w.Body)
			}
		})
	}
}

func TestFailOpenRunsTheHandlerWithoutALeaseAndLogs(t *testing.T) {
	rig := newGuardRig(t, locks.WithReleaseLimit(time.Millisecond))
	var log strings.Builder
	rig.Echo.Logger.SetOutput(&log)
	rig.store.acquire = func(context.Context, locks.Request) (locks.Lock, error) { return locks.Lock{}, errStore }
	rig.pay(func(c echo.Context) error {
		if lease := echolock.LeaseFrom(c); lease != nil || c.Get("lease") != nil {
			t.Errorf("lease = %v", lease)
		}
		return created(c)
	}, func(config *echolock.Config) { config.FailOpen = true })
	wantCode(t, rig.post("a1"), http.StatusCreated)
	if !strings.Contains(log.String(), "without a lease") || !strings.Contains(log.String(), "reset by peer") {
		t.Errorf("log = %q", log.String())
	}
}

func TestFailOpenIsNotForHeldKeysAClosedLockerOrAClientThatWent(t *testing.T) {
	open := func(config *echolock.Config) { config.FailOpen = true }
	t.Run("held", func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), open)
		rig.hold("a1")
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
	})
	t.Run("closed", func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), open)
		if err := rig.locker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantProblem(t, rig.post("a1"), http.StatusServiceUnavailable, lockhttp.TypeUnavailable)
	})
	t.Run("gone", func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), open)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantProblem(t, rig.serve(payRequest("a1").WithContext(ctx)), http.StatusServiceUnavailable, lockhttp.TypeUnavailable)
	})
}
