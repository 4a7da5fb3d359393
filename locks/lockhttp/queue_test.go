package lockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// queued is a stub with a queue that a test makes up.
type queued struct {
	*stub
	enqueue func(request locks.Request, most int) (locks.Place, error)
	waiters func(resource string, limit int) (locks.Queue, error)
}

func (q *queued) Enqueue(_ context.Context, request locks.Request, most int) (locks.Place, error) {
	return q.enqueue(request, most)
}

func (q *queued) Waiters(_ context.Context, resource string, limit int) (locks.Queue, error) {
	return q.waiters(resource, limit)
}

// withQueue is a change of a rig's configuration.
func withQueue(q *queued) func(*lockhttp.Config) {
	return func(c *lockhttp.Config) {
		q.stub = c.Store.(*stub)
		c.Store = q
	}
}

// place is a place whose turn never comes.
type place struct{ left atomic.Int32 }

func (*place) Waiter() locks.Waiter          { return locks.Waiter{} }
func (*place) Turn() <-chan struct{}         { return nil }
func (*place) Lapsed() bool                  { return false }
func (*place) Served()                       {}
func (p *place) Leave(context.Context) error { p.left.Add(1); return nil }

func TestAFullQueueIsHeldAndSaysSo(t *testing.T) {
	for _, status := range []int{200, 423, 409} {
		q := &queued{enqueue: func(_ locks.Request, most int) (locks.Place, error) {
			if most != 7 {
				t.Errorf("most = %d, want 7", most)
			}
			return nil, locks.ErrQueueFull
		}}
		g := newRig(t, withQueue(q), func(c *lockhttp.Config) { c.MaxWaiters, c.HeldStatus = 7, status })
		g.acquire("r", "w1")
		w := g.send("POST", "/locks/r", asksW2, "Prefer: wait=30")
		want(t, w, status)
		pattern := `"acquired":false,"resource":"r","retry_after_seconds":30,"holder":{"acquired_at":"[^"]+","expires_at":"[^"]+"},"queue_full":true}` + "\n$"
		if !regexp.MustCompile(pattern).MatchString(w.Body.String()) {
			t.Errorf("%d: answer = %s", status, w.Body)
		}
		if status != 200 {
			want(t, w, status, "held")
		}
		if got := w.Header().Get("Retry-After"); got != "30" {
			t.Errorf("Retry-After = %q, want 30", got)
		}
		// Who does not wait is not told of the queue.
		if w := g.send("POST", "/locks/r", asksW2); strings.Contains(w.Body.String(), "queue_full") {
			t.Errorf("answer = %s", w.Body)
		}
		g.settle()
	}
}

func TestWhoeverStopsWaitingLeavesTheQueueAtOnce(t *testing.T) {
	for name, stop := range map[string]func(g *rig, cancel func()){
		"the wait ends":    func(*rig, func()) { time.Sleep(30 * time.Second) },
		"the client goes":  func(_ *rig, cancel func()) { cancel() },
		"the API closes":   func(g *rig, _ func()) { g.settle() },
		"a fault for good": func(g *rig, _ func()) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := new(place)
				q := &queued{enqueue: func(locks.Request, int) (locks.Place, error) { return p, nil }}
				g := newRig(t, withQueue(q))
				g.acquire("r", "w1")
				tries := 0
				g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
					if tries++; name == "a fault for good" && tries == 2 {
						return locks.Lock{}, &locks.InvalidError{Field: "ttl", Reason: "is too long here"}
					}
					return g.store.Store.Acquire(ctx, request)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					r := call{"POST", "/locks/r?wait=30s", asksW2, nil}.request()
					g.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				}()
				synctest.Wait()
				stop(g, cancel)
				synctest.Wait()
				if got := p.left.Load(); got != 1 {
					t.Errorf("left %d times, want once", got)
				}
				<-done
			})
		})
	}
}

// Close is not done before the places are given up, so that a process that ends delays nobody.
func TestCloseWaitsForThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		p := &slowPlace{leave: leave}
		g := newRig(t, withQueue(&queued{enqueue: func(locks.Request, int) (locks.Place, error) { return p, nil }}))
		g.acquire("r", "w1")
		answer := g.start("/locks/r?wait=30s")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.api.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want context.DeadlineExceeded", err)
		}
		want(t, <-answer, 503, "unavailable")
		close(leave)
		g.settle()
	})
}

type slowPlace struct {
	place
	leave chan struct{}
}

func (p *slowPlace) Leave(context.Context) error { <-p.leave; return nil }

// noQueue hides what a store can do besides.
type noQueue struct {
	locks.Store
	locks.Lister
	locks.ForceReleaser
}

func threeWaiters(t *testing.T) *queued {
	since := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	return &queued{waiters: func(resource string, limit int) (locks.Queue, error) {
		if resource != "a/b" {
			t.Errorf("resource = %q", resource)
		}
		queue := locks.Queue{Waiting: 3}
		for i, owner := range []string{"w1", "w2", "w3"} {
			at := since.Add(time.Duration(i) * time.Second)
			queue.Waiters = append(queue.Waiters, locks.Waiter{
				Resource: resource, Owner: owner, Number: int64(i + 70), Since: at, ExpiresAt: at.Add(15 * time.Second),
			})
		}
		queue.Waiters = queue.Waiters[:min(limit, 3)]
		return queue, nil
	}}
}

func TestWhoWaits(t *testing.T) {
	first := `{"place":1,"owner":"w1","since":"2026-05-01T12:00:00.000000Z","expires_at":"2026-05-01T12:00:15.000000Z"}`
	second := `{"place":2,"owner":"w2","since":"2026-05-01T12:00:01.000000Z","expires_at":"2026-05-01T12:00:16.000000Z"}`
	third := `{"place":3,"owner":"w3","since":"2026-05-01T12:00:02.000000Z","expires_at":"2026-05-01T12:00:17.000000Z"}`
	for _, row := range []struct {
		target string
		show   bool
		want   string
	}{
		{"/locks/a%2Fb/waiters", false, ""},
		{"/locks/a%2Fb/waiters?limit=2", false, ""},
		{"/locks/a%2Fb/waiters?owner=w2", false, second},
		{"/locks/a%2Fb/waiters?owner=w2&limit=1", false, ""},
		{"/locks/a%2Fb/waiters?owner=nobody", false, ""},
		{"/locks/a%2Fb/waiters", true, first + "," + second + "," + third},
		{"/locks/a%2Fb/waiters?owner=w2", true, second},
		{"/admin/locks/a%2Fb/waiters", false, first + "," + second + "," + third},
		{"/admin/locks/a%2Fb/waiters?limit=1", false, first},
		{"/admin/locks/a%2Fb/waiters?owner=w2", false, second},
	} {
		g := newRig(t, withQueue(threeWaiters(t)), func(c *lockhttp.Config) { c.ShowHolders = row.show })
		w := httptest.NewRecorder()
		g.ServeHTTP(w, call{"GET", row.target, "", nil}.request())
		if got, want := w.Body.String(), `{"resource":"a/b","waiting":3,"waiters":[`+row.want+"]}\n"; w.Code != 200 || got != want {
			t.Errorf("%s: %d %s\nwant %s", row.target, w.Code, got, want)
		}
		want(t, g.send("HEAD", row.target, ""), 200)
	}
}

func TestWhoWaitsIsAskedStrictly(t *testing.T) {
	g := newRig(t, withQueue(threeWaiters(t)))
	for _, prefix := range []string{"/locks/", "/admin/locks/"} {
		for _, row := range []struct {
			target  string
			status  int
			problem []string
		}{
			{"%2E%2E/waiters", 422, []string{"invalid-field", "resource"}},
			{"a%2Fb/waiters?limit=0", 422, []string{"invalid-field", "limit"}},
			{"a%2Fb/waiters?limit=1001", 422, []string{"invalid-field", "limit"}},
			{"a%2Fb/waiters?limit=x", 400, []string{"malformed-request", "limit"}},
			{"a%2Fb/waiters?owner=", 422, []string{"invalid-field", "owner"}},
			{"a%2Fb/waiters?owner=a&owner=b", 400, []string{"malformed-request", "owner"}},
			{"a%2Fb/waiters?token=7", 400, []string{"malformed-request", "token"}},
			{"a%2Fb/waiters?limit=1000&other=1", 200, nil},
		} {
			want(t, g.send("GET", prefix+row.target, ""), row.status, row.problem...)
		}
		w := g.send("POST", prefix+"a%2Fb/waiters", "{}")
		if want(t, w, 405, "method-not-allowed"); w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow = %q", w.Header().Get("Allow"))
		}
	}
	want(t, g.send("GET", "/locks/http:x/waiters", ""), 403, "reserved-resource", "resource")
}

func TestWhoMaySeeWhoWaits(t *testing.T) {
	var asked []string
	authorize := func(_ *http.Request, action lockhttp.Action, resource string) error {
		asked = append(asked, fmt.Sprintf("%s %s", action, resource))
		return errors.New("no")
	}
	g := newRig(t, withQueue(threeWaiters(t)), func(c *lockhttp.Config) { c.Anyone, c.Authorize = false, authorize })
	want(t, g.send("GET", "/locks/a%2Fb/waiters", ""), 403, "forbidden")
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{Store: g.store, Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	admin.Handler("/admin/locks").ServeHTTP(w, call{"GET", "/admin/locks/a%2Fb/waiters", "", nil}.request())
	want(t, w, 403, "forbidden")
	if got, want := fmt.Sprint(asked), "[waiters a/b list_waiters a/b]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestAStoreWithoutAQueueIs501(t *testing.T) {
	g := newRig(t, func(c *lockhttp.Config) { s := c.Store.(*stub); c.Store = noQueue{s, s, s} })
	want(t, g.send("GET", "/locks/r/waiters", ""), 501, "no-queue")
	want(t, g.send("GET", "/admin/locks/r/waiters", ""), 501, "no-queue")
	// Nobody gets around the rules by that.
	want(t, g.send("GET", "/locks/r/waiters?limit=x", ""), 400, "malformed-request", "limit")
	want(t, g.send("POST", "/locks/r?wait=1s", asksW2), 200)
}

func TestAStoreThatFailsToTellWhoWaitsIs503(t *testing.T) {
	g := newRig(t, withQueue(&queued{waiters: func(string, int) (locks.Queue, error) { return locks.Queue{}, errors.New("secret") }}))
	for _, target := range []string{"/locks/r/waiters", "/admin/locks/r/waiters"} {
		want(t, g.send("GET", target, ""), 503, "unavailable")
	}
}
