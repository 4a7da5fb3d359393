package lockhttp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

func TestRefusedResources(t *testing.T) {
	g := newRig(t)
	for _, row := range []struct {
		segment string
		status  int
		problem string
	}{
		{"%2E", 422, "invalid-field"},
		{"%2e%2e", 422, "invalid-field"},
		{"%00", 422, "invalid-field"},
		{"a%0Ab", 422, "invalid-field"},
		{"%FF", 422, "invalid-field"},
		{strings.Repeat("a", 513), 422, "invalid-field"},
		{"", 422, "invalid-field"},
		{"http:4:POST", 403, "reserved-resource"},
		{"http%3Ax", 403, "reserved-resource"},
		{"%68ttp:", 403, "reserved-resource"},
	} {
		for _, c := range []call{
			{"POST", "/locks/" + row.segment, `{"owner":"w1"}`, nil},
			{"GET", "/locks/" + row.segment, "", nil},
			{"DELETE", "/locks/" + row.segment + "?owner=w1", "", nil},
			{"POST", "/locks/" + row.segment + "/renew", `{"owner":"w1"}`, nil},
		} {
			if row.segment == "" && c.target == "/locks//renew" {
				continue // the mux redirects it
			}
			want(t, g.do(c), row.status, row.problem, "resource")
		}
	}
	for _, segment := range []string{"HTTP:x", "http", "https:x", "...", "a%2F..%2Fb", strings.Repeat("a", 512)} {
		want(t, g.send("POST", "/locks/"+segment, `{"owner":"w1"}`), 200)
	}
}

func TestStoreFaultsAre503(t *testing.T) {
	for name, row := range map[string]struct {
		err     error
		problem string
	}{
		"down":          {fmt.Errorf("secret dsn: connection refused"), "unavailable"},
		"deadline":      {context.DeadlineExceeded, "unavailable"},
		"canceled":      {context.Canceled, "unavailable"},
		"closed":        {locks.ErrClosed, "unavailable"},
		"busy":          {fmt.Errorf("secret: %w", locks.ErrBusy), "busy"},
		"serialisation": {locks.ErrSerialization, "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			token := g.acquire("r", "w1")
			g.store.fail(row.err)
			for _, c := range []call{
				{"POST", "/locks/r", `{"owner":"w1"}`, nil},
				{"GET", "/locks/r", "", nil},
				{"POST", "/locks/r/renew", `{"owner":"w1","ttl_seconds":9}`, nil},
				{"DELETE", "/locks/r?owner=w1", "", nil},
				{"GET", "/locks/r/holders", "", nil},
				{"GET", "/admin/locks", "", nil},
				{"GET", "/admin/locks/r/holders", "", nil},
				{"DELETE", "/admin/locks/r?token=1&reason=x", "", nil},
			} {
				w := g.do(c)
				want(t, w, 503, row.problem)
				if w.Header().Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
			}
			if lock, err := g.store.Store.Get(t.Context(), "r"); err != nil || lock.Token != token {
				t.Errorf("the owner has %v, %v; want what it had, token %d", lock, err, token)
			}
		})
	}
}

func TestAnInvalidErrorOfTheStoreNamesTheWireField(t *testing.T) {
	g := newRig(t)
	for field, wire := range map[string]string{"ttl": "ttl_seconds", "attempt": "Idempotency-Key", "owner": "owner"} {
		g.store.fail(&locks.InvalidError{Field: field, Reason: "must be kinder"})
		w := g.send("POST", "/locks/r", `{"owner":"w1"}`)
		want(t, w, 422, "invalid-field", wire)
		if !strings.Contains(w.Body.String(), wire+" must be kinder") {
			t.Errorf("detail: %s", w.Body)
		}
	}
}

func TestWrongMethodsAndPaths(t *testing.T) {
	g := newRig(t)
	for _, row := range []struct{ method, target, allow string }{
		{"PUT", "/locks/r", "DELETE, GET, HEAD, POST"},
		{"GET", "/locks/r/renew", "POST"},
		{"POST", "/admin/locks", "GET, HEAD"},
		{"POST", "/admin/locks/r", "DELETE, GET, HEAD"},
	} {
		w := g.send(row.method, row.target, "")
		want(t, w, 405, "method-not-allowed")
		if got := w.Header().Get("Allow"); got != row.allow {
			t.Errorf("%s %s: Allow = %q, want %q", row.method, row.target, got, row.allow)
		}
	}
	for _, target := range []string{"/locks/a/b", "/locks/a/renew/b", "/locks/a/", "/admin/locks/a/b"} {
		want(t, g.send("GET", target, ""), 404, "no-such-route")
	}
}

func TestEncodedResourcesAreOneRowEach(t *testing.T) {
	g := newRig(t)
	for _, row := range []struct{ segment, resource string }{
		{"a%2Fb", "a/b"},
		{"a%2fb", "a/b"},
		{"a%252Fb", "a%2Fb"},
		{"a%20b", "a b"},
		{"a+b", "a+b"},
		{"a%2Bb", "a+b"},
		{"100%25", "100%"},
		{"%E4%BD%A0", "你"},
		{"%e4%bd%a0", "你"},
		{"a;b,c=d&e$f!g'(h)*@~:", "a;b,c=d&e$f!g'(h)*@~:"},
		{"a%3Fb%23c", "a?b#c"},
		{"renew", "renew"},
	} {
		path := "/locks/" + row.segment
		got := parse(t, g.send("POST", path, `{"owner":"w1"}`))
		if got.Lock.Resource != row.resource || g.holder(row.resource) != "w1" || g.store.Rows() != 1 {
			t.Errorf("%s made %q and %d rows, want %q", path, got.Lock.Resource, g.store.Rows(), row.resource)
		}
		want(t, g.send("GET", path, ""), 200)
		want(t, g.send("POST", path+"/renew", `{"owner":"w1","ttl_seconds":9}`), 200)
		want(t, g.send("DELETE", path+"?owner=w1", ""), 204)
		if g.store.Rows() != 0 {
			t.Errorf("%s: DELETE left %d rows", path, g.store.Rows())
		}
	}
}
