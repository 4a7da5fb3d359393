package echolock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// The write deadline moves through echo's writers.
func TestARESTWaitIsLongerThanTheWriteTimeout(t *testing.T) {
	for how, wait := range map[string]string{"refused": "wait=1", "granted": "wait=50"} {
		e := echo.New()
		store := mount(t, e.Group("/locks"))
		request := locks.Request{Resource: "r", Owner: "w1", Attempt: "1", TTL: time.Hour}
		if _, err := store.Acquire(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(e)
		server.Config.WriteTimeout = 300 * time.Millisecond
		server.Start()
		defer server.Close()
		if how == "granted" {
			time.AfterFunc(time.Second, func() {
				_ = store.Release(context.Background(), locks.Grant{Resource: "r", Owner: "w1", Token: locks.AnyToken})
			})
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/locks/r", strings.NewReader(`{"owner":"w2"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Prefer", wait)
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), fmt.Sprintf(`"acquired":%v`, how == "granted")) {
			t.Errorf("%s: answer = %d %s %v", how, response.StatusCode, body, err)
		}
		if got := response.Header.Get("Preference-Applied"); got != wait {
			t.Errorf("Preference-Applied = %q, want %s", got, wait)
		}
	}
}

func TestMountPassesTheLimitsOnWaits(t *testing.T) {
	e := echo.New()
	rig := newGuardRig(t)
	store := &queuedStore{guardedStore: rig.store, full: true}
	if _, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Anyone: true, MaxWait: 2 * time.Second, MaxWaiters: 9}); err != nil {
		t.Fatal(err)
	}
	send(e, "POST", "/locks/r", `{"owner":"w1"}`)
	w := send(e, "POST", "/locks/r", `{"owner":"w2"}`, "Prefer: wait=30")
	if got := w.Header().Get("Preference-Applied"); got != "wait=2" || store.most.Load() != 9 || !strings.Contains(w.Body.String(), `"queue_full":true`) {
		t.Errorf("Preference-Applied = %q, most = %d: %s", got, store.most.Load(), w.Body)
	}
	_, err := echolock.Mount(e.Group("/x"), echolock.RoutesConfig{Store: store, Anyone: true, MaxWait: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "MaxWait") {
		t.Errorf("err = %v, want the field MaxWait", err)
	}
}

// twoWaiters is a store in whose queues two wait.
type twoWaiters struct{ *memstore.Store }

func (twoWaiters) Enqueue(context.Context, locks.Request, int) (locks.Place, error) {
	return nil, locks.ErrQueueFull
}

func (twoWaiters) Waiters(_ context.Context, resource string, limit int) (locks.Queue, error) {
	waiters := []locks.Waiter{{Resource: resource, Owner: "w1", Number: 7}, {Resource: resource, Owner: "w2", Number: 8}}
	return locks.Queue{Waiting: 2, Waiters: waiters[:min(limit, 2)]}, nil
}

func TestWhoWaitsOverEcho(t *testing.T) {
	e := echo.New()
	store := twoWaiters{memstore.New()}
	var asked []string
	authorize := func(_ echo.Context, action lockhttp.Action, resource string) error {
		asked = append(asked, string(action)+" "+resource)
		return nil
	}
	if _, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Authorize: authorize}); err != nil {
		t.Fatal(err)
	}
	if err := echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{Store: store, Authorize: authorize}); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/locks/a%2Fb/waiters":          `{"resource":"a/b","waiting":2,"waiters":[]}`,
		"/locks/a%2Fb/waiters?owner=w2": `{"resource":"a/b","waiting":2,"waiters":[{"place":2,"owner":"w2",`,
		"/admin/locks/a%2Fb/waiters":    `{"resource":"a/b","waiting":2,"waiters":[{"place":1,"owner":"w1",`,
	} {
		w := send(e, "GET", target, "")
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s…", target, w.Code, w.Body, want)
		}
		if w := send(e, "HEAD", target, ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d %s", target, w.Code, w.Body)
		}
		for _, one := range asked {
			if strings.HasPrefix(target, "/admin") != strings.HasPrefix(one, "list_waiters ") || !strings.HasSuffix(one, " a/b") {
				t.Errorf("%s asked %q", target, one)
			}
		}
		asked = nil
	}
}
