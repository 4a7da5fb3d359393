package echolock_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func waiting(limit time.Duration) func(config *echolock.Config) {
	return func(config *echolock.Config) { config.WaitTimeout = limit }
}

func TestWithoutWaitTimeoutThereIsOneTry(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(mustNotRun(t))
	rig.hold("a1")
	before := rig.store.calls.Load()
	wantCode(t, rig.post("a1"), http.StatusLocked)
	if tries := rig.store.calls.Load() - before; tries != 1 {
		t.Errorf("%d tries, want 1", tries)
	}
}

func TestAWaitEndsWhenTheKeyIsFreeAndDoesNotBoundTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(func(c echo.Context) error {
			time.Sleep(time.Minute) // longer than the wait may be, and than the TTL
			ctx := c.Request().Context()
			if _, bounded := ctx.Deadline(); bounded || ctx.Err() != nil {
				t.Errorf("the handler's context is bounded by the wait: %v", context.Cause(ctx))
			}
			return created(c)
		}, waiting(10*time.Second), func(config *echolock.Config) { config.ExposeHeaders = true })
		lease := rig.hold("a1")
		answers := rig.start(payRequest("a1"))
		time.Sleep(3 * time.Second)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := <-answers
		wantCode(t, w, http.StatusCreated)
		if waited := w.Header().Get(echolock.HeaderWaited); len(waited) != 4 { // 3 s and less than a pause
			t.Errorf("waited = %s ms", waited)
		}
	})
}

func TestAWaitThatTakesTooLongIs423(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), waiting(2*time.Second))
		rig.hold("a1")
		began := time.Now()
		w := rig.post("a1")
		wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v, want 2s", took)
		}
		if w.Header().Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	})
}

func TestAWaitThatEndsWhileTheStoreIsAskedIs423Too(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.hold("a1")
		first := rig.store.calls.Load()
		rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
			if rig.store.calls.Load() == first+2 { // the second one of the request
				<-ctx.Done()
				return locks.Lock{}, ctx.Err()
			}
			return rig.store.Store.Acquire(ctx, request)
		}
		rig.pay(mustNotRun(t), waiting(2*time.Second), func(config *echolock.Config) { config.FailOpen = true })
		began := time.Now()
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v, want 2s", took)
		}
	})
}

// A grant that comes in the instant that the wait ends runs the handler or is given back, nothing between.
func TestAGrantAtTheEndOfTheWait(t *testing.T) {
	counts := map[int]int{}
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
				time.Sleep(time.Second)
				return rig.store.Store.Acquire(context.WithoutCancel(t.Context()), request)
			}
			rig.pay(func(c echo.Context) error {
				synctest.Wait()
				if err := c.Request().Context().Err(); err != nil {
					t.Errorf("the handler ran with a context that had ended: %v", err)
				}
				return created(c)
			}, waiting(time.Second))
			w := rig.post("a1")
			counts[w.Code]++
			time.Sleep(10 * time.Second)
			rig.wantFree("a1")
		})
	}
	for status := range counts {
		if status != http.StatusCreated && status != http.StatusLocked && status != http.StatusServiceUnavailable {
			t.Errorf("answers = %v", counts)
		}
	}
	t.Logf("answers: %v", counts)
}

func TestAClientThatGoesEndsTheWaitAlsoWithABody(t *testing.T) {
	for name, body := range map[string]string{"without a body": "", "with a body": `{"amount":100}`} {
		t.Run(name, func(t *testing.T) {
			ended, tried := make(chan error, 1), make(chan struct{}, 100)
			rig := newGuardRig(t, locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
				if event.Kind == locks.EventAcquireFailed {
					ended <- event.Err
				}
			})))
			rig.pay(mustNotRun(t), waiting(time.Minute))
			lease := rig.hold("a1")
			rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				tried <- struct{}{}
				return rig.store.Store.Acquire(ctx, request)
			}
			server := rig.server()
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = payTo(ctx, t, server, "a1", body) }()
			receive(t, tried, "the first try")
			cancel()
			if err := receive(t, ended, "the wait's end"); !errors.Is(err, context.Canceled) {
				t.Errorf("the wait ended with %v", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			rig.wantFree("a1") // and stays so: nobody waits for it any more
		})
	}
}

// The client goes, or a limit of the host passes, in the very instant of the grant.
func TestAGrantForARequestThatIsOverIsGivenBack(t *testing.T) {
	for range 100 { // whether the grant or the end is seen first is left to chance
		rig := newGuardRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		rig.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
			defer cancel()
			return rig.store.Store.Acquire(context.WithoutCancel(ctx), request)
		}
		rig.pay(mustNotRun(t), func(config *echolock.Config) { config.FailOpen = true })
		wantCode(t, rig.serve(payRequest("a1").WithContext(ctx)), http.StatusServiceUnavailable)
		if err := rig.locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
		rig.wantFree("a1")
	}
}

func TestTheBodyIsThereAfterAWait(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "text/plain", body)
	}, waiting(time.Second))
	server := rig.server()
	response, err := payTo(t.Context(), t, server, "a1", `{"amount":100}`)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(response.Body); string(body) != `{"amount":100}` {
		t.Errorf("body = %q", body)
	}
}

func TestContextTimeoutOutsideBoundsTheWaitAndTheAnswerIsStill423(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				err := next(c)
				var answer *echo.HTTPError
				if !errors.As(err, &answer) || answer.Code != http.StatusLocked {
					t.Errorf("error = %v, want 423", err)
				}
				return err
			}
		})
		rig.POST("/pay", mustNotRun(t), middleware.ContextTimeout(time.Second), rig.guard(waiting(time.Minute)))
		rig.hold("a1")
		began := time.Now()
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
	})
}

func TestAWaitOutlivesAFewFaultsAndNotMany(t *testing.T) {
	for name, test := range map[string]struct {
		faults int64
		open   bool
		status int
	}{
		"two":             {2, false, http.StatusCreated},
		"many":            {1000, false, http.StatusServiceUnavailable},
		"many, fail open": {1000, true, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
					if rig.store.calls.Load() <= test.faults {
						return locks.Lock{}, errStore
					}
					return rig.store.Store.Acquire(ctx, request)
				}
				rig.pay(func(c echo.Context) error {
					if err := c.Request().Context().Err(); err != nil {
						t.Error(err)
					}
					return created(c)
				}, waiting(time.Minute), func(config *echolock.Config) { config.FailOpen = test.open })
				wantCode(t, rig.post("a1"), test.status)
			})
		})
	}
}

func TestAStoreThatHangsIs503WhenTheWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t, locks.WithCallLimit(time.Hour))
		rig.store.acquire = func(ctx context.Context, _ locks.Request) (locks.Lock, error) {
			<-ctx.Done()
			return locks.Lock{}, ctx.Err()
		}
		rig.pay(mustNotRun(t), waiting(2*time.Second))
		began := time.Now()
		wantProblem(t, rig.post("a1"), http.StatusServiceUnavailable, lockhttp.TypeUnavailable)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v, want at most a second more than the wait", took)
		}
	})
}

func TestCloseEndsAWaitWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), waiting(time.Minute), func(config *echolock.Config) { config.FailOpen = true })
		lease := rig.hold("a1")
		answers := rig.start(payRequest("a1"))
		synctest.Wait()
		go func() { _ = rig.locker.Close(t.Context()) }()
		w := <-answers
		wantProblem(t, w, http.StatusServiceUnavailable, lockhttp.TypeUnavailable)
		_ = lease.Release(t.Context())
	})
}

func TestAWaiterRunsTheHandlerAgainUnlessOnAcquiredAnswers(t *testing.T) {
	for name, recheck := range map[string]bool{"as it is": false, "with OnAcquired": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				runs, rechecks, stored := 0, 0, ""
				rig.pay(func(c echo.Context) error {
					runs++
					time.Sleep(3 * time.Second)
					stored = "receipt 1"
					return c.String(http.StatusCreated, stored)
				}, waiting(time.Minute), func(config *echolock.Config) {
					if !recheck {
						return
					}
					config.OnAcquired = func(c echo.Context, lease *locks.Lease) error {
						rechecks++
						if lease.Err() != nil || echolock.LeaseFrom(c) != lease {
							t.Error("OnAcquired is not under the lease")
						}
						if stored != "" {
							return c.String(http.StatusOK, stored)
						}
						return nil
					}
				})
				first, second := rig.start(payRequest("a1")), rig.start(payRequest("a1"))
				codes := map[int]bool{(<-first).Code: true, (<-second).Code: true}
				want := 2
				if recheck {
					want = 1
				}
				if runs != want || codes[http.StatusOK] != recheck {
					t.Errorf("the handler ran %d times, answers %v", runs, codes)
				}
				if recheck && rechecks != 2 {
					t.Errorf("OnAcquired was called %d times, want once for each request", rechecks)
				}
			})
		})
	}
}

func TestAnErrorOfOnAcquiredIsTheAnswer(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(mustNotRun(t), func(config *echolock.Config) {
		config.OnAcquired = func(echo.Context, *locks.Lease) error { return echo.ErrConflict }
	})
	wantCode(t, rig.post("a1"), http.StatusConflict)
	rig.wantFree("a1")
}
