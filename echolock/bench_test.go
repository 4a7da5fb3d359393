package echolock_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

// noStore grants everything and does nothing, so that what is measured is what stands before it.
type noStore struct{ locks.Store }

func (noStore) Acquire(_ context.Context, request locks.Request) (locks.Lock, error) {
	return locks.Lock{ID: 1, Resource: request.Resource, Owner: request.Owner, Token: 1, Remaining: request.TTL}, nil
}

func (noStore) Release(context.Context, locks.Grant) error { return nil }

// Renew is never reached within a benchmark.
func (noStore) Renew(_ context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	return locks.Lock{Resource: grant.Resource, Owner: grant.Owner, Token: grant.Token, Remaining: ttl}, nil
}

// nowhere is a ResponseWriter that costs nothing.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header       { return w.header }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// pairs returns one acquire and release by the locker alone, and by a guarded request; and the bare request.
func pairs(tb testing.TB) (locker, guarded, bare func()) {
	l, err := locks.New(noStore{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close(context.Background()) })
	none := func(c echo.Context) error { return nil }
	e := echo.New()
	e.POST("/pay", none, echolock.Middleware(l, "header:Idempotency-Key"))
	e.POST("/bare", none)
	requests := map[string]*http.Request{}
	for _, path := range []string{"/pay", "/bare"} {
		requests[path] = httptest.NewRequest(http.MethodPost, path, nil)
		requests[path].Header.Set("Idempotency-Key", "7b5a1f0e-8f6c-4a53-9f0e-2f8d3c1b6a90")
	}
	serve := func(path string) func() {
		r, w := requests[path], nowhere{http.Header{}}
		return func() { e.ServeHTTP(w, r) }
	}
	work := func(context.Context, *locks.Lease) error { return nil }
	return func() {
		if err := l.TryDo(context.Background(), "a resource", work); err != nil {
			tb.Fatal(err)
		}
	}, serve("/pay"), serve("/bare")
}

func TestTheMiddlewareAddsAtMostSixtyAllocations(t *testing.T) {
	locker, guarded, bare := pairs(t)
	own := testing.AllocsPerRun(500, guarded) - testing.AllocsPerRun(500, bare) - testing.AllocsPerRun(500, locker)
	t.Logf("%.0f allocations beside the locker's and echo's own", own)
	if own > 60 {
		t.Errorf("the middleware adds %.0f allocations, want at most 60", own)
	}
}

func BenchmarkPair(b *testing.B) {
	locker, guarded, bare := pairs(b)
	for _, one := range []struct {
		name string
		run  func()
	}{{"echo alone", bare}, {"locker", locker}, {"middleware", guarded}} {
		b.Run(one.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				one.run()
			}
		})
	}
}
