package echolock_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

var errStore = errors.New("connection reset by peer")

// guardedStore is a memory store that a test can break.
type guardedStore struct {
	*memstore.Store
	acquire func(ctx context.Context, request locks.Request) (locks.Lock, error) // nil: the memory store's
	renew   atomic.Pointer[error]                                                // what every renewal returns
	calls   atomic.Int64                                                         // of Acquire
}

func (s *guardedStore) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	s.calls.Add(1)
	if s.acquire != nil {
		return s.acquire(ctx, request)
	}
	return s.Store.Acquire(ctx, request)
}

func (s *guardedStore) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if err := s.renew.Load(); err != nil {
		return locks.Lock{}, *err
	}
	return s.Store.Renew(ctx, grant, ttl)
}

// guardRig is an echo whose POST /pay is guarded by the header Idempotency-Key.
type guardRig struct {
	*echo.Echo
	t      testing.TB
	store  *guardedStore
	locker *locks.Locker
}

func newGuardRig(t testing.TB, options ...locks.Option) *guardRig {
	t.Helper()
	rig := &guardRig{Echo: echo.New(), t: t, store: &guardedStore{Store: memstore.New()}}
	rig.Echo.Logger.SetOutput(t.Output())
	rig.locker = rig.newLocker(options...)
	return rig
}

// newLocker is another process on the same store.
func (rig *guardRig) newLocker(options ...locks.Option) *locks.Locker {
	rig.t.Helper()
	locker, err := locks.New(rig.store, options...)
	if err != nil {
		rig.t.Fatal(err)
	}
	rig.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			rig.t.Errorf("the locker is still busy: %v", err)
		}
	})
	return locker
}

// guard returns the middleware for the rig's locker.
func (rig *guardRig) guard(change ...func(*echolock.Config)) echo.MiddlewareFunc {
	config := echolock.Config{Locker: rig.locker}
	for _, change := range change {
		change(&config)
	}
	return echolock.MiddlewareWithConfig(config)
}

// pay mounts the handler.
func (rig *guardRig) pay(handler echo.HandlerFunc, change ...func(*echolock.Config)) {
	rig.POST("/pay", handler, rig.guard(change...))
}

func payResource(key string) string {
	resource, err := lockhttp.RequestResource(http.MethodPost, "/pay", key)
	if err != nil {
		panic(err)
	}
	return resource
}

// hold takes the key's lease, as another request would.
func (rig *guardRig) hold(key string, options ...locks.AcquireOption) *locks.Lease {
	rig.t.Helper()
	lease, err := rig.locker.TryAcquire(context.Background(), payResource(key), options...)
	if err != nil {
		rig.t.Fatal(err)
	}
	rig.t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

func (rig *guardRig) wantFree(key string) {
	rig.t.Helper()
	if lock, err := rig.store.Get(context.Background(), payResource(key)); !errors.Is(err, locks.ErrNotFound) {
		rig.t.Errorf("Get = %+v, %v; want the key free", lock, err)
	}
}

// post sends POST /pay with the key.
func (rig *guardRig) post(key string) *httptest.ResponseRecorder {
	return rig.serve(payRequest(key))
}

func (rig *guardRig) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	rig.ServeHTTP(w, r)
	return w
}

// start sends it from a goroutine.
func (rig *guardRig) start(r *http.Request) <-chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- rig.serve(r) }()
	return answers
}

func payRequest(key string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/pay", http.NoBody)
	r.Header.Set("Idempotency-Key", key)
	return r
}

// server serves the rig over the network.
func (rig *guardRig) server(change ...func(*httptest.Server)) *httptest.Server {
	server := httptest.NewUnstartedServer(rig.Echo)
	for _, change := range change {
		change(server)
	}
	server.Start()
	rig.t.Cleanup(server.Close)
	return server
}

func payTo(ctx context.Context, t testing.TB, server *httptest.Server, key, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/pay", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	response, err := server.Client().Do(r)
	if err == nil {
		t.Cleanup(func() { response.Body.Close() })
	}
	return response, err
}

// answer is what a problem says.
type answer struct {
	Type       string `json:"type"`
	Status     int    `json:"status"`
	Field      string `json:"field"`
	RetryAfter int    `json:"retry_after_seconds"`
	Message    string `json:"message"`
	Acquired   *bool  `json:"acquired"`
	Holder     *struct {
		AcquiredAt time.Time `json:"acquired_at"`
		ExpiresAt  time.Time `json:"expires_at"`
	} `json:"holder"`
}

// wantProblem checks that an answer is this problem, and returns it.
func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, urn string) answer {
	t.Helper()
	var got answer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Errorf("body = %q: %v", w.Body, err)
	}
	if w.Code != status || got.Status != status || got.Type != urn {
		t.Errorf("answer = %d %s, want %d %s", w.Code, w.Body, status, urn)
	}
	if media := w.Header().Get("Content-Type"); media != lockhttp.ProblemMediaType {
		t.Errorf("Content-Type = %q, want %q", media, lockhttp.ProblemMediaType)
	}
	return got
}

func wantCode(t testing.TB, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("answer = %d %s, want %d", w.Code, w.Body, status)
	}
}

// receive waits for a signal, but not for ever.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(10 * time.Second):
		t.Fatalf("waited too long for %s", what)
		panic("unreachable")
	}
}

func created(c echo.Context) error { return c.String(http.StatusCreated, "done") }

// mustNotRun is a handler that the guard should keep from running.
func mustNotRun(t testing.TB) echo.HandlerFunc {
	return func(c echo.Context) error {
		t.Error("the handler ran")
		return created(c)
	}
}
