package lockhttp_test

import (
	"fmt"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

func TestRenew(t *testing.T) {
	g := newRig(t)
	first := parse(t, g.send("POST", "/locks/r", `{"owner":"w1","ttl_seconds":10,"metadata":{}}`)).Lock
	for _, body := range []string{
		fmt.Sprintf(`{"owner":"w1","ttl_seconds":60,"token":%d}`, *first.Token), `{"owner":"w1","ttl_seconds":60}`,
	} {
		w := g.send("POST", "/locks/r/renew", body)
		want(t, w, 200)
		got := parse(t, w).Lock
		if *got.Token != *first.Token || got.AcquiredAt != first.AcquiredAt || got.TTLSeconds != 60 || got.ExpiresAt <= first.ExpiresAt || string(got.Metadata) != "{}" {
			t.Errorf("renewed = %+v, first %+v", got, first)
		}
	}
	want(t, g.send("POST", "/locks/r/renew", `{"owner":"w1"}`), 422, "invalid-field", "ttl_seconds")
	if got := parse(t, g.send("POST", "/locks/r/renew", `{"owner":"w1","ttl_seconds":1}`)).Lock.TTLSeconds; got != 1 {
		t.Errorf("ttl_seconds = %d, want 1: a renew may also shorten", got)
	}
}

// The four ways in which a grant is not current, through renew, release and release by token.
func TestLostGrants(t *testing.T) {
	for _, row := range []struct {
		name           string
		prepare        func(g *rig) (token int64)
		renew, release int
		problem        string
	}{
		{"not held", func(*rig) int64 { return 1 }, 409, 404, "not-held"},
		{"expired", func(g *rig) int64 {
			token := g.acquire("r", "w1")
			g.store.Expire("r")
			return token
		}, 409, 404, "expired"},
		{"another owner", func(g *rig) int64 {
			token := g.acquire("r", "w1")
			g.store.Expire("r")
			g.acquire("r", "w2")
			return token
		}, 409, 403, "not-owner"},
		{"superseded", func(g *rig) int64 {
			token := g.acquire("r", "w1")
			g.acquire("r", "w1")
			return token
		}, 409, 403, "superseded"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := newRig(t)
			token := row.prepare(g)
			before := g.holder("r")
			want(t, g.send("POST", "/locks/r/renew", fmt.Sprintf(`{"owner":"w1","ttl_seconds":9,"token":%d}`, token)), row.renew, row.problem)
			want(t, g.send("DELETE", fmt.Sprintf("/locks/r?owner=w1&token=%d", token), ""), row.release, row.problem)
			if row.problem != "superseded" { // without a token there is no older grant
				want(t, g.send("POST", "/locks/r/renew", `{"owner":"w1","ttl_seconds":9}`), row.renew, row.problem)
				want(t, g.send("DELETE", "/locks/r", `{"owner":"w1"}`), row.release, row.problem)
			}
			if got := g.holder("r"); got != before {
				t.Errorf("holder = %q, want %q", got, before)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	for name, c := range map[string]func(token int64) call{
		"query":           func(int64) call { return call{"DELETE", "/locks/r?owner=w1", "", nil} },
		"query and token": func(n int64) call { return call{"DELETE", fmt.Sprintf("/locks/r?owner=w1&token=%d", n), "", nil} },
		"body":            func(int64) call { return call{"DELETE", "/locks/r", `{"owner":"w1"}`, nil} },
		"body and token": func(n int64) call {
			return call{"DELETE", "/locks/r", fmt.Sprintf(`{"owner":"w1","token":%d}`, n), nil}
		},
		"both, the same": func(n int64) call {
			return call{"DELETE", fmt.Sprintf("/locks/r?owner=w1&token=%d", n), fmt.Sprintf(`{"token":%d,"owner":"w1"}`, n), nil}
		},
		"a type but no body": func(int64) call {
			return call{"DELETE", "/locks/r?owner=w1", "", []string{"Content-Type: text/plain"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			c := c(g.acquire("r", "w1"))
			w := g.do(c)
			want(t, w, 204)
			if g.holder("r") != "" {
				t.Error("still held")
			}
			want(t, g.do(c), 404, "not-held")
		})
	}
}

func TestReleaseRefused(t *testing.T) {
	g := newRig(t)
	token := g.acquire("r", "w1")
	for _, row := range []struct {
		query, body    string
		status         int
		problem, field string
	}{
		{"", "", 422, "invalid-field", "owner"},
		{"", "{}", 422, "invalid-field", "owner"},
		{"?owner=", "", 422, "invalid-field", "owner"},
		{"?owner=w2", "", 403, "not-owner", ""},
		{"?owner=w1&owner=w2", "", 400, "malformed-request", "owner"},
		{"?owner=w1", `{"owner":"w2"}`, 400, "malformed-request", "owner"},
		{"?owner=w1&token=", "", 400, "malformed-request", "token"},
		{"?owner=w1&token", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=x", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=1.0", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=%2B1", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=01", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=1&token=2", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=1", `{"token":2}`, 400, "malformed-request", "token"},
		{"?owner=w1&Token=1", "", 400, "malformed-request", "token"},
		{"?owner=w1&token=0", "", 422, "invalid-field", "token"},
		{"?owner=w1&token=-1", "", 422, "invalid-field", "token"}, // locks.AnyToken is no client's word
		{"?owner=w1&token=9007199254740992", "", 422, "invalid-field", "token"},
		{"?owner=w1&token=99999999999999999999", "", 422, "invalid-field", "token"},
		{"?owner=w1", `{"token":-1}`, 422, "invalid-field", "token"},
		{"?owner=w1", `{"token":"1"}`, 400, "malformed-request", "token"},
		{"?owner=w1", `{"token":null}`, 400, "malformed-request", "token"},
		{"?owner=w1", `{"ttl_seconds":3}`, 400, "malformed-request", "ttl_seconds"},
		{"?owner=w1;token=1", "", 400, "malformed-request", "query"},
		{fmt.Sprintf("?owner=w1&token=%d", token+1), "", 403, "superseded", ""},
	} {
		t.Run(row.query+" "+row.body, func(t *testing.T) {
			g.t = t
			want(t, g.send("DELETE", "/locks/r"+row.query, row.body), row.status, row.problem, row.field)
			if g.holder("r") != "w1" {
				t.Fatal("the lease is gone")
			}
		})
	}
}

func TestGuardedIs409(t *testing.T) {
	g := newRig(t)
	g.store.fail(locks.ErrGuarded)
	w := g.send("DELETE", "/locks/r?owner=w1", "")
	want(t, w, 409, "guarded")
	if got := w.Header().Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After = %q, want 1", got)
	}
	want(t, g.send("DELETE", "/admin/locks/r?token=1&reason=x", ""), 409, "guarded")
}
