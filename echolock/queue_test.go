package echolock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// queuedStore is a store with a queue in which nobody's turn ever comes.
type queuedStore struct {
	*guardedStore
	full bool
	most atomic.Int64
	left atomic.Int64
}

func (s *queuedStore) Enqueue(_ context.Context, _ locks.Request, most int) (locks.Place, error) {
	s.most.Store(int64(most))
	if s.full {
		return nil, locks.ErrQueueFull
	}
	return endlessPlace{s}, nil
}

func (s *queuedStore) Waiters(context.Context, string, int) (locks.Queue, error) {
	return locks.Queue{}, nil
}

type endlessPlace struct{ store *queuedStore }

func (endlessPlace) Waiter() locks.Waiter          { return locks.Waiter{} }
func (endlessPlace) Turn() <-chan struct{}         { return nil }
func (endlessPlace) Lapsed() bool                  { return false }
func (endlessPlace) Served()                       {}
func (p endlessPlace) Leave(context.Context) error { p.store.left.Add(1); return nil }

// withQueue gives the rig's locker such a store.
func (rig *guardRig) withQueue() *queuedStore {
	rig.t.Helper()
	store := &queuedStore{guardedStore: rig.store}
	locker, err := locks.New(store)
	if err != nil {
		rig.t.Fatal(err)
	}
	rig.t.Cleanup(func() { _ = locker.Close(context.Background()) })
	rig.locker = locker
	return store
}

func TestAFullQueueIs423AndSaysSo(t *testing.T) {
	for name, change := range map[string]func(rig *guardRig, config *echolock.Config){
		"plain":     func(*guardRig, *echolock.Config) {},
		"fail open": func(_ *guardRig, config *echolock.Config) { config.FailOpen = true },
		"under Tx":  func(rig *guardRig, config *echolock.Config) { config.Tx = &database{Transactor: rig.store} },
		"409":       func(_ *guardRig, config *echolock.Config) { config.HeldStatus = http.StatusConflict },
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			store := rig.withQueue()
			store.full = true
			var seen error
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { seen = next(c); return seen }
			})
			status := http.StatusLocked
			rig.pay(mustNotRun(t), waiting(time.Minute), func(config *echolock.Config) {
				config.MaxWaiters = 5
				change(rig, config)
				if config.HeldStatus != 0 {
					status = config.HeldStatus
				}
			})
			rig.hold("a1", locks.WithTTL(10*time.Second))
			w := rig.post("a1")
			got := wantProblem(t, w, status, lockhttp.TypeHeld)
			var body struct {
				QueueFull bool `json:"queue_full"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || !body.QueueFull {
				t.Errorf("body = %s", w.Body)
			}
			if got.RetryAfter != 10 || got.Holder == nil || store.most.Load() != 5 {
				t.Errorf("Retry-After = %d, holder = %v, most = %d", got.RetryAfter, got.Holder, store.most.Load())
			}
			var held *locks.HeldError
			if !errors.Is(seen, locks.ErrQueueFull) || !errors.Is(seen, locks.ErrHeld) || !errors.As(seen, &held) {
				t.Errorf("error = %v", seen)
			}
		})
	}
}

func TestDenyHandlerAnswersAFullQueue(t *testing.T) {
	rig := newGuardRig(t)
	rig.withQueue().full = true
	rig.pay(mustNotRun(t), waiting(time.Minute), func(config *echolock.Config) {
		config.DenyHandler = func(c echo.Context, held *locks.HeldError) error {
			return c.String(http.StatusTeapot, held.Resource)
		}
	})
	rig.hold("a1")
	if w := rig.post("a1"); w.Code != http.StatusTeapot || w.Body.String() != payResource("a1") {
		t.Errorf("answer = %d %s", w.Code, w.Body)
	}
}

func TestWhoeverStopsWaitingLeavesTheQueueAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		stop   func(rig *guardRig, cancel func())
		status int
	}{
		"the wait ends":    {func(*guardRig, func()) { time.Sleep(time.Minute) }, http.StatusLocked},
		"the client goes":  {func(_ *guardRig, cancel func()) { cancel() }, http.StatusLocked}, // to nobody
		"the locker close": {func(rig *guardRig, _ func()) { go func() { _ = rig.locker.Close(context.Background()) }() }, http.StatusServiceUnavailable},
	} {
		for how, byTx := range map[string]bool{"": false, " under Tx": true} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rig := newGuardRig(t)
					other := rig.locker
					store := rig.withQueue()
					rig.pay(mustNotRun(t), waiting(time.Minute), func(config *echolock.Config) {
						if byTx {
							config.Tx = &database{Transactor: rig.store}
						}
					})
					lease, err := other.TryAcquire(t.Context(), payResource("a1"))
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					answer := rig.start(payRequest("a1").WithContext(ctx))
					synctest.Wait()
					test.stop(rig, cancel)
					synctest.Wait()
					if got := store.left.Load(); got != 1 {
						t.Errorf("left %d times, want once", got)
					}
					wantCode(t, <-answer, test.status)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
					rig.wantFree("a1")
				})
			})
		}
	}
}

// The answer at the end of a wait tells of the holder as it is then, not as it was when the wait began.
func TestARefusalAfterAWaitTellsOfTheHolderNow(t *testing.T) {
	for name, by := range map[string]func() []echo.MiddlewareFunc{
		"the wait's limit": func() []echo.MiddlewareFunc { return nil },
		"a host's limit": func() []echo.MiddlewareFunc {
			return []echo.MiddlewareFunc{middleware.ContextTimeout(20 * time.Second)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				limit := 20 * time.Second
				if len(by()) > 0 {
					limit = time.Minute
				}
				lease := rig.hold("a1", locks.WithTTL(30*time.Second), locks.WithoutRenewal())
				rig.withQueue()
				rig.POST("/pay", mustNotRun(t), append(by(), rig.guard(waiting(limit)))...)
				time.AfterFunc(15*time.Second, func() { _ = lease.Renew(context.Background()) })
				began := time.Now()
				w := rig.post("a1")
				got := wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld)
				if took := time.Since(began); took != 20*time.Second {
					t.Errorf("took %v, want 20s", took)
				}
				if got.RetryAfter != 25 || w.Header().Get("Retry-After") != "25" || got.Holder == nil {
					t.Errorf("Retry-After = %q, want 25: %s", w.Header().Get("Retry-After"), w.Body)
				}
			})
		})
	}
}

func TestWithNobodyToAskAboutTheHolderARefusalSaysSoonAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.withQueue()
		rig.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) { // and Get says that it is free
			return locks.Lock{}, locks.Held(request.Resource, &locks.Lock{Remaining: time.Hour})
		}
		rig.pay(mustNotRun(t), waiting(2*time.Second))
		w := rig.post("a1")
		if got := wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld); got.RetryAfter != 1 || got.Holder != nil {
			t.Errorf("body = %s", w.Body)
		}
	})
}

// The look at the end of a wait that the store kept in the dark comes from outside, and overtakes nobody.
func TestALastLookWhileOthersWaitIs423(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		rig.withQueue()
		rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
			if rig.store.calls.Load() == 1 {
				<-ctx.Done()
				return locks.Lock{}, ctx.Err()
			}
			if request.Barge {
				t.Error("the last look barges")
			}
			return locks.Lock{}, locks.Held(request.Resource, nil)
		}
		rig.pay(mustNotRun(t), waiting(2*time.Second), func(config *echolock.Config) { config.FailOpen = true })
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
	})
}

func TestBarging(t *testing.T) {
	for _, barging := range []bool{false, true} {
		rig := newGuardRig(t)
		var asked []bool
		rig.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
			asked = append(asked, request.Barge)
			return rig.store.Store.Acquire(ctx, request)
		}
		rig.pay(created, waiting(time.Second), func(config *echolock.Config) { config.Barging = barging })
		wantCode(t, rig.post("a1"), http.StatusCreated)
		if len(asked) != 1 || asked[0] != barging {
			t.Errorf("Barge = %v, want %v once", asked, barging)
		}
	}
}

func TestRequestsAreServedInOrder(t *testing.T) {
	if _, ok := any(memstore.New()).(locks.Queuer); !ok {
		t.Skip("the memory store has no queue")
	}
	synctest.Test(t, func(t *testing.T) {
		rig := newGuardRig(t)
		var order []string
		tried := make(chan struct{})
		rig.pay(func(c echo.Context) error {
			<-tried
			order = append(order, c.QueryParam("n"))
			return created(c)
		}, waiting(time.Minute))
		rig.POST("/try", mustNotRun(t), rig.guard(func(config *echolock.Config) {
			config.KeyScope = func(echo.Context) ([]string, error) { return []string{http.MethodPost, "/pay"}, nil }
		}))
		lease := rig.hold("a1")
		var answers []<-chan *httptest.ResponseRecorder
		for _, n := range []string{"1", "2", "3"} {
			r := payRequest("a1")
			r.URL.RawQuery = "n=" + n
			answers = append(answers, rig.start(r))
			synctest.Wait()
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCode(t, rig.serve(ask("/try", "", "Idempotency-Key: a1")), http.StatusLocked)
		close(tried)
		for _, answer := range answers {
			wantCode(t, <-answer, http.StatusCreated)
		}
		if len(order) != 3 || order[0]+order[1]+order[2] != "123" {
			t.Errorf("served in the order %v", order)
		}
	})
}
