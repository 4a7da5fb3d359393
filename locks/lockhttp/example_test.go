package lockhttp_test

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// show sends one request and prints status and body without what differs from run to run.
func show(handler http.Handler, method, target, body string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	text, _, _ := strings.Cut(w.Body.String(), `,"lock":`)
	text, _, _ = strings.Cut(text, `,"holder":`)
	fmt.Println(w.Code, strings.TrimSpace(text))
}

// Scripts and services in other languages share leases through a host's HTTP server.
func ExampleNew() {
	api, err := lockhttp.New(lockhttp.Config{
		Store:  memstore.New(), // in production a bunstore
		Anyone: true,           // behind the firewall; else set Authorize
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", api.Handler("/locks"))

	show(mux, "POST", "/locks/invoices:2026-05", `{"owner":"w1","ttl_seconds":30}`)
	show(mux, "POST", "/locks/invoices:2026-05", `{"owner":"w2","ttl_seconds":30}`)
	show(mux, "DELETE", "/locks/invoices:2026-05?owner=w1", "")
	// Output:
	// 200 {"acquired":true
	// 200 {"acquired":false,"resource":"invoices:2026-05","retry_after_seconds":30
	// 204
}

// A client that asks for a wait is answered when it is its turn, and need not ask again and again.
func ExampleAPI_Acquire() {
	store := memstore.New()
	api, err := lockhttp.New(lockhttp.Config{Store: store, Anyone: true, MaxWait: 30 * time.Second, MaxWaiters: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(api.Handler("/locks"), "POST", "/locks/report", `{"owner":"w1","ttl_seconds":30}`)
	go func() { // w1 is done
		_ = store.Release(context.Background(), locks.Grant{Resource: "report", Owner: "w1", Token: locks.AnyToken})
	}()
	show(api.Handler("/locks"), "POST", "/locks/report?wait=30s", `{"owner":"w2","ttl_seconds":30}`)
	// Output:
	// 200 {"acquired":true
	// 200 {"acquired":true
}

// Each team may touch the resources that begin with its name.
func ExampleConfig_authorize() {
	api, err := lockhttp.New(lockhttp.Config{
		Store: memstore.New(),
		Authorize: func(r *http.Request, _ lockhttp.Action, resource string) error {
			team, _, ok := r.BasicAuth()
			switch {
			case !ok:
				return lockhttp.ErrUnauthenticated
			case !strings.HasPrefix(resource, team+"/"):
				return errors.New("another team's resource")
			}
			return nil
		},
		Challenge: `Basic realm="locks"`,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, target := range []string{"/locks/billing%2Fclose", "/locks/stock%2Fcount"} {
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(`{"owner":"w1"}`))
		r.Header.Set("Content-Type", "application/json")
		r.SetBasicAuth("billing", "…")
		w := httptest.NewRecorder()
		api.Handler("/locks").ServeHTTP(w, r)
		fmt.Println(target, w.Code)
	}
	// Output:
	// /locks/billing%2Fclose 200
	// /locks/stock%2Fcount 403
}

// An operator ends the lease that it saw, and says why.
func ExampleNewAdmin() {
	store := memstore.New()
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
		Store: store,
		Authorize: func(r *http.Request, _ lockhttp.Action, _ string) error {
			_, password, _ := r.BasicAuth()
			if subtle.ConstantTimeCompare([]byte(password), []byte("correct horse")) == 0 {
				return lockhttp.ErrUnauthenticated
			}
			return nil
		},
		Challenge: "Basic",
		Audit: func(_ context.Context, release lockhttp.ForceRelease) {
			user, _, _ := release.Request.BasicAuth()
			fmt.Printf("audit: %s, %s, %q, done: %v\n", user, release.Resource, release.Reason, release.Err == nil)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := store.Acquire(context.Background(), locks.Request{Resource: "report", Owner: "w1", Attempt: "1", TTL: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tag := range []string{"", fmt.Sprintf(`"%d"`, lock.Token+1), fmt.Sprintf(`"%d"`, lock.Token)} {
		r := httptest.NewRequest(http.MethodDelete, "/admin/locks/report?reason=hangs+since+noon", nil)
		r.SetBasicAuth("ada", "correct horse")
		if tag != "" {
			r.Header.Set("If-Match", tag)
		}
		w := httptest.NewRecorder()
		admin.Handler("/admin/locks").ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 428
	// audit: ada, report, "hangs since noon", done: false
	// 412
	// audit: ada, report, "hangs since noon", done: true
	// 200
}

func ExampleRequestResource() {
	name, err := lockhttp.RequestResource("POST", "/payments", "a1")
	fmt.Println(name, err)
	// Output: http:4:POST,9:/payments,2:a1 <nil>
}

// A host on a framework of its own routes the request and finds the resource.
func ExamplePathResource() {
	r := httptest.NewRequest(http.MethodGet, "/t/acme/locks/orders%2F17", nil)
	resource, err := lockhttp.PathResource(r.URL.EscapedPath(), "/t/:tenant/locks/:resource")
	fmt.Println(resource, err)
	// Output: orders/17 <nil>
}

// Middleware of a host answers in the same words.
func ExampleHeld() {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/payments", nil)
	_ = lockhttp.Held(locks.Held("payment:a1", nil), http.StatusLocked).Write(w, r)
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("Content-Type"))
	// Output: 423 1 application/problem+json
}
