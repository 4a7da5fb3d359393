package echolock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestALostLeaseEndsTheHandlersContextWithItsCauseAndTellsOnLostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		var told []error
		rig.pay(func(c echo.Context) error {
			rig.store.Expire(payResource("a1")) // the next renewal is told
			<-c.Request().Context().Done()
			if cause := context.Cause(c.Request().Context()); !errors.Is(cause, locks.ErrLost) {
				t.Errorf("cause = %v, want ErrLost", cause)
			}
			synctest.Wait()
			if len(told) != 1 {
				t.Errorf("told %v while the handler runs, want once", told)
			}
			return created(c)
		}, func(config *echolock.Config) {
			config.OnLost = func(lease *locks.Lease, err error) {
				if lease.Resource() != payResource("a1") {
					t.Errorf("resource = %q", lease.Resource())
				}
				told = append(told, err)
			}
		})
		rig.post("a1")
		synctest.Wait()
		if len(told) != 1 || !errors.Is(told[0], locks.ErrExpired) {
			t.Errorf("told %v, want ErrExpired once", told)
		}
	})
}

func TestALossThatOnlyTheReleaseFindsIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		var told []error
		rig.pay(func(echo.Context) error {
			rig.store.Expire(payResource("a1"))
			return nil
		}, func(config *echolock.Config) {
			config.OnLost = func(_ *locks.Lease, err error) { told = append(told, err) }
		})
		wantProblem(t, rig.post("a1"), http.StatusServiceUnavailable, lockhttp.TypeLost)
		synctest.Wait()
		if len(told) != 1 || !errors.Is(told[0], locks.ErrExpired) {
			t.Errorf("told %v, want ErrExpired once", told)
		}
	})
}

func TestTheAnswerWhenTheLeaseWasLost(t *testing.T) {
	own := errors.New("card declined")
	for name, test := range map[string]struct {
		handler echo.HandlerFunc
		status  int
		check   func(err error) bool
	}{
		"the handler answered":   {created, http.StatusCreated, func(err error) bool { return err == nil }},
		"its error":              {func(echo.Context) error { return own }, http.StatusInternalServerError, func(err error) bool { return err == own }}, //nolint:errorlint // the very same
		"neither of them":        {func(echo.Context) error { return nil }, http.StatusServiceUnavailable, func(err error) bool { return errors.Is(err, locks.ErrLost) }},
		"its context's own word": {func(c echo.Context) error { return context.Cause(c.Request().Context()) }, http.StatusInternalServerError, func(err error) bool { return errors.Is(err, locks.ErrLost) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						err := next(c)
						if !test.check(err) {
							t.Errorf("error = %v", err)
						}
						return err
					}
				})
				rig.pay(func(c echo.Context) error {
					rig.store.Expire(payResource("a1"))
					<-c.Request().Context().Done()
					return test.handler(c)
				})
				w := rig.post("a1")
				wantCode(t, w, test.status)
				if test.status == http.StatusServiceUnavailable {
					wantProblem(t, w, test.status, lockhttp.TypeLost)
					if w.Header().Get("Retry-After") == "" {
						t.Error("no Retry-After")
					}
				}
			})
		})
	}
}

func TestALateReleaseLeavesTheNextHolderAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t, locks.WithTTL(300*time.Millisecond), locks.WithoutRenewal())
		go1, go2 := make(chan struct{}), make(chan struct{})
		var runs atomic.Int64
		rig.pay(func(c echo.Context) error {
			if runs.Add(1) == 1 {
				<-go1 // it does not look at its context
			} else {
				<-go2
			}
			return created(c)
		}, func(config *echolock.Config) { config.TTL = time.Minute })
		slow := rig.start(payRequest("a1"))
		time.Sleep(2 * time.Minute)
		second := rig.start(payRequest("a1")) // takes over
		synctest.Wait()
		close(go1)
		<-slow
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld) // the second one's, still
		close(go2)
		wantCode(t, <-second, http.StatusCreated)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		rig.wantFree("a1")
	})
}

func TestAHandlerLongerThanTheTTLKeepsTheOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(func(c echo.Context) error {
			time.Sleep(2 * time.Second)
			return created(c)
		}, func(config *echolock.Config) { config.TTL = 300 * time.Millisecond })
		first := rig.start(payRequest("a1"))
		synctest.Wait()
		for range 19 {
			time.Sleep(100 * time.Millisecond)
			wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
		}
		wantCode(t, <-first, http.StatusCreated)
		rig.wantFree("a1")
	})
}

func TestAfterACrashTheKeyIsFreeWhenItsTTLEnds(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(created)
	// A process that is no more: its row, and nobody who renews it.
	request := locks.Request{Resource: payResource("a1"), Owner: "killed", Attempt: "1", TTL: time.Hour}
	if _, err := rig.store.Store.Acquire(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	wantCode(t, rig.post("a1"), http.StatusLocked)
	rig.store.Expire(payResource("a1"))
	wantCode(t, rig.post("a1"), http.StatusCreated)
}

func TestMaxHoldEndsTheHandlersContextWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		lostOnes := 0
		rig.pay(func(c echo.Context) error {
			began := time.Now()
			<-c.Request().Context().Done() // a proxy that keeps a dead stream open
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("held for %v, want 5s", took)
			}
			if cause := context.Cause(c.Request().Context()); !errors.Is(cause, locks.ErrMaxHold) {
				t.Errorf("cause = %v, want ErrMaxHold", cause)
			}
			return c.NoContent(http.StatusNoContent)
		}, func(config *echolock.Config) {
			config.MaxHold = 5 * time.Second
			config.OnLost = func(*locks.Lease, error) { lostOnes++ }
		})
		wantCode(t, rig.post("a1"), http.StatusNoContent)
		synctest.Wait()
		if lostOnes != 0 {
			t.Error("OnLost was told of a lease that was not lost")
		}
		rig.wantFree("a1")
	})
}

func TestRenewalsThatFailForAWhileAreNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(func(c echo.Context) error {
			rig.store.renew.Store(&errStore)
			time.Sleep(15 * time.Second) // the first renewal was due at 10 s of 30
			rig.store.renew.Store(nil)
			time.Sleep(time.Minute)
			if err := c.Request().Context().Err(); err != nil {
				t.Error(context.Cause(c.Request().Context()))
			}
			return created(c)
		})
		wantCode(t, rig.post("a1"), http.StatusCreated)
	})
}

func TestAPanicOfOnLostIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		var log strings.Builder
		rig.Echo.Logger.SetOutput(&log)
		rig.pay(func(c echo.Context) error {
			rig.store.Expire(payResource("a1"))
			<-c.Request().Context().Done()
			return created(c)
		}, func(config *echolock.Config) {
			config.OnLost = func(*locks.Lease, error) { panic("pager is down") }
		})
		wantCode(t, rig.post("a1"), http.StatusCreated)
		synctest.Wait()
		if !strings.Contains(log.String(), "pager is down") {
			t.Errorf("log = %q", log.String())
		}
	})
}

// Under the race detector: nothing of the middleware touches an echo.Context that echo has taken back.
func TestManyRequestsThatLoseTheirLeasesWithOnLost(t *testing.T) {
	rig := newGuardRig(t, locks.WithRenewalInterval(5*time.Millisecond))
	var told atomic.Int64
	rig.POST("/pay", func(c echo.Context) error {
		rig.store.Expire(echolock.LeaseFrom(c).Resource())
		<-c.Request().Context().Done()
		return created(c)
	}, rig.guard(func(config *echolock.Config) {
		config.OnLost = func(lease *locks.Lease, _ error) {
			_ = lease.Context().Value(http.ServerContextKey)
			told.Add(1)
		}
	}))
	server := rig.server()
	const requests, clients = 200, 20
	done := make(chan int, requests)
	for client := range clients {
		go func() {
			for range requests / clients {
				response, err := payTo(context.Background(), t, server, "key "+string(rune('a'+client)), "")
				if err != nil {
					t.Error(err)
					done <- 0
					continue
				}
				done <- response.StatusCode
			}
		}()
	}
	for range requests {
		if status := receive(t, done, "an answer"); status != http.StatusCreated {
			t.Errorf("status = %d", status)
		}
	}
	server.Close()
	for deadline := time.Now().Add(10 * time.Second); told.Load() < requests && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if told.Load() != requests {
		t.Errorf("OnLost was told %d times, want %d", told.Load(), requests)
	}
}

func TestLeaseFromIsNilWithoutTheMiddleware(t *testing.T) {
	c := echo.New().NewContext(httptest.NewRequest(http.MethodPost, "/", nil), httptest.NewRecorder())
	if lease := echolock.LeaseFrom(c); lease != nil {
		t.Errorf("lease = %v", lease)
	}
}
