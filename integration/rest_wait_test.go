package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// waitRig is two servers with the REST API on one database, as two processes of a host are.
type waitRig struct {
	t       *testing.T
	store   *bunstore.Store // of the first
	servers [2]*httptest.Server
	apis    [2]*lockhttp.API
}

func newWaitRig(t *testing.T, driver, dsn string) *waitRig {
	t.Helper()
	r := &waitRig{t: t}
	for i := range r.servers {
		db := open(t, driver, dsn)
		if i == 0 {
			if err := bunstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
		}
		store := newStore(t, db)
		e := echo.New()
		api, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Anyone: true, MaxWaiters: 3})
		if err != nil {
			t.Fatal(err)
		}
		allow := func(echo.Context, lockhttp.Action, string) error { return nil }
		if err := echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{Store: store, Authorize: allow}); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(e)
		server.Config.WriteTimeout = 2 * time.Second
		server.Start()
		t.Cleanup(server.Close)
		if i == 0 {
			r.store = store
		}
		r.servers[i], r.apis[i] = server, api
	}
	return r
}

// send sends one request to a server.
func (r *waitRig) send(ctx context.Context, server int, method, target, body string, header ...string) (map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.servers[server].URL+target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := r.servers[server].Client().Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	var answer map[string]any
	return answer, json.Unmarshal(text, &answer)
}

// acquire acquires for an owner on a goroutine.
func (r *waitRig) acquire(ctx context.Context, server int, owner, query string, header ...string) <-chan map[string]any {
	answers := make(chan map[string]any, 1)
	go func() {
		answer, err := r.send(ctx, server, http.MethodPost, "/locks/job"+query, `{"owner":"`+owner+`","ttl_seconds":60}`, header...)
		if err != nil && ctx.Err() == nil {
			r.t.Errorf("%s: %v", owner, err)
		}
		answers <- answer
	}()
	return answers
}

// waiters are the owners in the queue, as the second server's operators see them.
func (r *waitRig) waiters() string {
	answer, err := r.send(r.t.Context(), 1, http.MethodGet, "/admin/locks/job/waiters", "")
	if err != nil {
		r.t.Error(err)
		return ""
	}
	list, ok := answer["waiters"].([]any)
	if !ok {
		r.t.Fatalf("waiters: %v", answer)
	}
	var owners []string
	for i, one := range list {
		waiter := one.(map[string]any)
		if waiter["place"] != float64(i+1) {
			r.t.Errorf("%v is at place %v, want %d", waiter["owner"], waiter["place"], i+1)
		}
		owners = append(owners, waiter["owner"].(string))
	}
	if answer["waiting"] != float64(len(owners)) {
		r.t.Errorf("waiting = %v of %d", answer["waiting"], len(owners))
	}
	return strings.Join(owners, " ")
}

func (r *waitRig) untilWaiting(want string) {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for got := r.waiters(); got != want; got = r.waiters() {
		if time.Now().After(deadline) {
			r.t.Fatalf("%q wait, want %q", got, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *waitRig) release(owner string) {
	r.t.Helper()
	if answer, err := r.send(r.t.Context(), 1, http.MethodDelete, "/locks/job?owner="+owner, ""); err != nil || answer != nil {
		r.t.Fatalf("release by %s: %v %v", owner, answer, err)
	}
}

func (r *waitRig) wantGranted(answers <-chan map[string]any, owner string) {
	r.t.Helper()
	select {
	case answer := <-answers:
		lock, _ := answer["lock"].(map[string]any)
		if answer["acquired"] != true || lock["owner"] != owner {
			r.t.Fatalf("%s: answer = %v", owner, answer)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("%s waits in vain", owner)
	}
}

// Clients of two servers wait beside a Go program, longer than WriteTimeout, and are served in their order.
func TestRESTWaitsOnPostgres(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newWaitRig(t, driver, dsn)
		r.wantGranted(r.acquire(t.Context(), 0, "w0", ""), "w0")
		first := r.acquire(t.Context(), 0, "w1", "?wait=50s")
		r.untilWaiting("w1")
		leaving, leave := context.WithCancel(t.Context())
		second := r.acquire(leaving, 1, "w2", "?wait=50s")
		r.untilWaiting("w1 w2")
		locker, err := locks.New(r.store)
		if err != nil {
			t.Fatal(err)
		}
		inGo := make(chan error, 1)
		go func() {
			inGo <- locker.Do(t.Context(), "job", func(context.Context, *locks.Lease) error { return nil }, locks.WithOwner("w3"))
		}()
		r.untilWaiting("w1 w2 w3")

		full := <-r.acquire(t.Context(), 1, "w4", "?wait=50s")
		if full["acquired"] != false || full["queue_full"] != true || full["holder"] == nil {
			t.Errorf("w4: answer = %v, want a full queue", full)
		}
		mine, err := r.send(t.Context(), 0, http.MethodGet, "/locks/job/waiters?owner=w2", "")
		if got := fmt.Sprint(mine["waiting"], len(mine["waiters"].([]any))); err != nil || got != "3 1" {
			t.Errorf("waiters of w2: %v %v", mine, err)
		}
		leave() // the second server's client goes, and its place with it
		<-second
		r.untilWaiting("w1 w3")
		short := <-r.acquire(t.Context(), 1, "w5", "", "Prefer", "wait=3") // longer than the WriteTimeout
		if short["acquired"] != false || short["holder"] == nil || short["queue_full"] != nil {
			t.Errorf("w5: answer = %v, want held", short)
		}
		r.release("w0")
		r.wantGranted(first, "w1")
		if try := <-r.acquire(t.Context(), 1, "w6", ""); try["acquired"] != false {
			t.Errorf("w6: answer = %v, want held", try)
		}
		last := r.acquire(t.Context(), 0, "w7", "?wait=50s")
		r.untilWaiting("w3 w7")
		r.release("w1")
		if err := <-inGo; err != nil {
			t.Errorf("w3: %v", err)
		}
		r.wantGranted(last, "w7")
		if got := r.waiters(); got != "" {
			t.Errorf("%q wait still", got)
		}
		if err := locker.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A client whose wait was cut off asks again with the same key: it keeps its place, or its grant, and is in nobody's way.
func TestARESTWaitThatIsRepeated(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newWaitRig(t, driver, dsn)
		r.wantGranted(r.acquire(t.Context(), 0, "w0", ""), "w0")
		cutOff, cut := context.WithCancel(t.Context())
		first := r.acquire(cutOff, 0, "w1", "?wait=50s", "Idempotency-Key", "k1")
		r.untilWaiting("w1")
		again := r.acquire(t.Context(), 0, "w1", "?wait=50s", "Idempotency-Key", "k1")
		behind := r.acquire(t.Context(), 0, "w2", "?wait=50s")
		r.untilWaiting("w1 w2")
		cut()
		<-first
		r.release("w0")
		select {
		case answer := <-again:
			if lock, _ := answer["lock"].(map[string]any); lock["owner"] != "w1" {
				t.Fatalf("w1: answer = %v", answer)
			}
			r.release("w1")
			r.wantGranted(behind, "w2")
		case answer := <-behind: // it lost its place with the first request
			if lock, _ := answer["lock"].(map[string]any); lock["owner"] != "w2" {
				t.Fatalf("w2: answer = %v", answer)
			}
			r.release("w2")
			r.wantGranted(again, "w1")
			r.release("w1")
		case <-time.After(40 * time.Second):
			t.Fatal("nobody is served")
		}
		_, _ = r.send(t.Context(), 0, http.MethodDelete, "/locks/job?owner=w2", "")
		// Those who come later are served too.
		r.wantGranted(r.acquire(t.Context(), 0, "w3", ""), "w3")
		later := r.acquire(t.Context(), 0, "w4", "?wait=50s")
		r.untilWaiting("w4")
		r.release("w3")
		r.wantGranted(later, "w4")
	})
}

// A server that shuts down ends its waits, and leaves no place behind.
func TestClosedRESTWaitsLeaveTheQueue(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newWaitRig(t, driver, dsn)
		r.wantGranted(r.acquire(t.Context(), 0, "w0", ""), "w0")
		waits := r.acquire(t.Context(), 0, "w1", "?wait=50s")
		r.untilWaiting("w1")
		if err := r.apis[0].Close(t.Context()); err != nil {
			t.Error(err)
		}
		if answer := <-waits; answer["status"] != float64(http.StatusServiceUnavailable) {
			t.Errorf("answer = %v, want 503", answer)
		}
		if got := r.waiters(); got != "" {
			t.Errorf("%q wait still", got)
		}
	})
}
