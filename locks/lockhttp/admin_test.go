package lockhttp_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestInspectShowsEverythingOfTheMiddlewareToo(t *testing.T) {
	g := newRig(t)
	resource, err := lockhttp.RequestResource("POST", "/payments", "a1")
	if err != nil {
		t.Fatal(err)
	}
	token := g.acquire(resource, "w1")
	w := g.send("GET", "/admin/locks/"+url.PathEscape(resource), "")
	want(t, w, 200)
	if got := parse(t, w).Lock; *got.Owner != "w1" || *got.Token != token || string(got.Metadata) != "null" || got.Resource != resource {
		t.Errorf("lock = %+v", got)
	}
	want(t, g.send("HEAD", "/admin/locks/"+url.PathEscape(resource), ""), 200)
	want(t, g.send("GET", "/admin/locks/free", ""), 404, "not-held")
	want(t, g.send("GET", "/admin/locks/free?owner=w1", ""), 400, "malformed-request", "owner")
	want(t, g.send("GET", "/admin/locks/%2E", ""), 422, "invalid-field", "resource")
}

type page struct {
	Locks []struct {
		Resource, Owner string
		Token           int64
	} `json:"locks"`
	Next *string `json:"next_cursor"`
}

func (g *rig) list(query string) page {
	g.t.Helper()
	w := g.send("GET", "/admin/locks"+query, "")
	want(g.t, w, 200)
	var got page
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		g.t.Fatal(err)
	}
	return got
}

func TestListPages(t *testing.T) {
	g := newRig(t)
	if got, want := g.send("GET", "/admin/locks", "").Body.String(), `{"locks":[],"next_cursor":null}`+"\n"; got != want {
		t.Errorf("empty list = %s, want %s", got, want)
	}
	for i := range 7 {
		g.acquire(fmt.Sprintf("a:%d", i), fmt.Sprintf("w%d", i%2))
	}
	g.acquire("b/ü?", "w0")
	var names []string
	next := ""
	for range 10 {
		got := g.list("?prefix=a:&limit=3&cursor=" + next)
		for _, lock := range got.Locks {
			names = append(names, lock.Resource)
			if lock.Token == 0 || lock.Owner == "" {
				t.Errorf("a list hides fields: %+v", lock)
			}
		}
		if got.Next == nil {
			break
		}
		next = *got.Next
	}
	if got, want := strings.Join(names, " "), "a:0 a:1 a:2 a:3 a:4 a:5 a:6"; got != want {
		t.Errorf("pages = %s, want %s", got, want)
	}
	if got := g.list("?owner=w1"); len(got.Locks) != 3 || got.Next != nil {
		t.Errorf("?owner=w1: %+v", got)
	}
	if got := g.list("?prefix=&owner=&cursor=&limit="); len(got.Locks) != 8 {
		t.Errorf("empty parameters: %d leases, want 8", len(got.Locks))
	}
	if got := g.list("?prefix=b%2F"); len(got.Locks) != 1 || got.Locks[0].Resource != "b/ü?" {
		t.Errorf("?prefix=b/: %+v", got)
	}
	if got := g.list("?limit=1000"); len(got.Locks) != 8 {
		t.Errorf("?limit=1000: %d leases, want 8", len(got.Locks))
	}
	want(t, g.send("HEAD", "/admin/locks?limit=2", ""), 200)
}

func TestListRefused(t *testing.T) {
	g := newRig(t)
	encode := base64.RawURLEncoding.EncodeToString
	for _, row := range []struct {
		query          string
		status         int
		problem, field string
	}{
		{"?token=1", 400, "malformed-request", "token"},
		{"?limit=x", 400, "malformed-request", "limit"},
		{"?limit=1.0", 400, "malformed-request", "limit"},
		{"?limit=1&limit=2", 400, "malformed-request", "limit"},
		{"?prefix=a&prefix=b", 400, "malformed-request", "prefix"},
		{"?owner=a&owner=", 400, "malformed-request", "owner"},
		{"?Cursor=a", 400, "malformed-request", "cursor"},
		{"?prefix=%", 400, "malformed-request", "query"},
		{"?limit=0", 422, "invalid-field", "limit"},
		{"?limit=-1", 422, "invalid-field", "limit"},
		{"?limit=1001", 422, "invalid-field", "limit"},
		{"?limit=99999999999999999999", 422, "invalid-field", "limit"},
		{"?prefix=%00", 422, "invalid-field", "prefix"},
		{"?prefix=" + strings.Repeat("a", 513), 422, "invalid-field", "prefix"},
		{"?owner=%FF", 422, "invalid-field", "owner"},
		{"?cursor=!", 422, "invalid-field", "cursor"},
		{"?cursor=MQ==", 422, "invalid-field", "cursor"},
		{"?cursor=" + encode([]byte("1")), 422, "invalid-field", "cursor"},
		{"?cursor=" + encode([]byte("2a")), 422, "invalid-field", "cursor"},
		{"?cursor=" + encode([]byte("1\xff")), 422, "invalid-field", "cursor"},
		{"?cursor=" + encode([]byte("1a"))[:2] + "%0A" + encode([]byte("1a"))[2:], 422, "invalid-field", "cursor"},
		{"?cursor=MWF", 422, "invalid-field", "cursor"}, // not canonical
	} {
		g.t = t
		t.Run(row.query, func(t *testing.T) {
			g.t = t
			want(t, g.send("GET", "/admin/locks"+row.query, ""), row.status, row.problem, row.field)
		})
	}
}

func TestForceRelease(t *testing.T) {
	for name, c := range map[string]func(token int64) call{
		"If-Match, reason in the query": func(n int64) call {
			return call{"DELETE", "/admin/locks/r?reason=stuck+for%20hours", "", []string{fmt.Sprintf(`If-Match: "%d"`, n)}}
		},
		"both in the query": func(n int64) call {
			return call{"DELETE", fmt.Sprintf("/admin/locks/r?reason=stuck+for%%20hours&token=%d", n), "", nil}
		},
		"reason in the body": func(n int64) call {
			return call{"DELETE", fmt.Sprintf("/admin/locks/r?token=%d", n), `{"reason":"stuck for hours"}`, nil}
		},
		"everything twice": func(n int64) call {
			return call{"DELETE", fmt.Sprintf("/admin/locks/r?token=%d&reason=stuck+for+hours", n), `{"reason":"stuck for hours"}`, []string{fmt.Sprintf(`If-Match:  "%d" `, n)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			token := g.acquire("r", "w1")
			w := g.do(c(token))
			want(t, w, 200)
			if got := parse(t, w).Lock; *got.Token != token || *got.Owner != "w1" {
				t.Errorf("released = %+v", got)
			}
			if g.holder("r") != "" {
				t.Error("still held")
			}
			want(t, g.do(c(token)), 404, "not-held")
			if len(g.audited) != 2 {
				t.Fatalf("%d audits, want 2", len(g.audited))
			}
			first, second := g.audited[0], g.audited[1]
			if first.Resource != "r" || first.Token != token || first.Reason != "stuck for hours" || first.Err != nil || first.Released.Owner != "w1" || first.Request == nil {
				t.Errorf("audit = %+v", first)
			}
			if !errors.Is(second.Err, locks.ErrNotFound) {
				t.Errorf("audit of the second = %v, want ErrNotFound", second.Err)
			}
		})
	}
}

func TestForceReleaseRefused(t *testing.T) {
	g := newRig(t)
	token := g.acquire("r", "w1")
	tag := fmt.Sprintf(`If-Match: "%d"`, token)
	for _, row := range []struct {
		query, body    string
		headers        []string
		status         int
		problem, field string
	}{
		{"", "", nil, 428, "token-required", "token"},
		{"?reason=x", "", nil, 428, "token-required", "token"},
		{"?reason=x", "", []string{"If-Match: *"}, 428, "token-required", "token"},
		{"?reason=x", "", []string{fmt.Sprintf(`If-Match: W/"%d"`, token)}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{fmt.Sprintf(`If-Match: "%d"`, token+1)}, 412, "token-mismatch", ""},
		{"?reason=x", "", []string{`If-Match: ""`}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{`If-Match: "abc"`}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{`If-Match: "-1"`}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{`If-Match: "0"`}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{fmt.Sprintf(`If-Match: "0%d"`, token)}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{`If-Match: "9007199254740992"`}, 412, "token-mismatch", "If-Match"},
		{"?reason=x", "", []string{fmt.Sprintf("If-Match: %d", token)}, 400, "malformed-request", "If-Match"},
		{"?reason=x", "", []string{"If-Match: "}, 400, "malformed-request", "If-Match"},
		{"?reason=x", "", []string{`If-Match: "`}, 400, "malformed-request", "If-Match"},
		{"?reason=x", "", []string{fmt.Sprintf(`If-Match: "%d", "9"`, token)}, 400, "malformed-request", "If-Match"},
		{"?reason=x", "", []string{tag, `If-Match: "9"`}, 400, "malformed-request", "If-Match"},
		{"?reason=x", "", []string{tag, "If-Match: *"}, 400, "malformed-request", "If-Match"},
		{fmt.Sprintf("?reason=x&token=%d", token+1), "", []string{tag}, 400, "malformed-request", "token"},
		{"?reason=x&token=", "", nil, 400, "malformed-request", "token"},
		{"?reason=x&token=x", "", nil, 400, "malformed-request", "token"},
		{"?reason=x&token=0", "", nil, 422, "invalid-field", "token"},
		{"?reason=x&token=-1", "", nil, 422, "invalid-field", "token"},
		{"", "", []string{tag}, 422, "invalid-field", "reason"},
		{"?reason=", "", []string{tag}, 422, "invalid-field", "reason"},
		{"?reason=a%0Ab", "", []string{tag}, 422, "invalid-field", "reason"},
		{"?reason=%FF", "", []string{tag}, 422, "invalid-field", "reason"},
		{"?reason=" + strings.Repeat("x", 501), "", []string{tag}, 422, "invalid-field", "reason"},
		{"", `{}`, []string{tag}, 422, "invalid-field", "reason"},
		{"", `{"reason":1}`, []string{tag}, 400, "malformed-request", "reason"},
		{"", `{"reason":"x","token":1}`, []string{tag}, 400, "malformed-request", "token"},
		{"?reason=y", `{"reason":"x"}`, []string{tag}, 400, "malformed-request", "reason"},
		{"?reason=y&reason=x", "", []string{tag}, 400, "malformed-request", "reason"},
		{"", `{"reason":"x"}`, []string{tag, "Content-Type: text/plain"}, 415, "unsupported-media-type", "Content-Type"},
	} {
		t.Run(row.query+row.body+strings.Join(row.headers, ","), func(t *testing.T) {
			g.t = t
			want(t, g.send("DELETE", "/admin/locks/r"+row.query, row.body, row.headers...), row.status, row.problem, row.field)
			if g.holder("r") != "w1" {
				t.Fatal("the lease is gone")
			}
		})
	}
	if len(g.audited) != 1 { // the one that named another token
		t.Errorf("%d audits, want 1: %+v", len(g.audited), g.audited)
	}
	want(t, g.send("DELETE", "/admin/locks/r?reason="+strings.Repeat("x", 500), "", tag), 200)
}
