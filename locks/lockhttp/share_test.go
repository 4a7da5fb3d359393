package lockhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// share is a body that acquires a share; how is `"shared":true` or `"slots":n`.
func share(owner, how string) string { return fmt.Sprintf(`{"owner":%q,%s}`, owner, how) }

// granted acquires over HTTP and returns the token.
func (g *rig) granted(resource, body string) int64 {
	g.t.Helper()
	w := g.send("POST", "/locks/"+resource, body)
	want(g.t, w, 200)
	got := parse(g.t, w)
	if !got.Acquired {
		g.t.Fatalf("not granted: %s", w.Body)
	}
	return *got.Lock.Token
}

const instantText = `"\d{4}-\d\d-\d\dT[^"]+Z"`

// wantText compares a body with a text in which T is any instant and N any number.
func wantText(t *testing.T, w *httptest.ResponseRecorder, text string) {
	t.Helper()
	pattern := strings.NewReplacer(`"T"`, instantText, ":N", `:\d+`).Replace(regexp.QuoteMeta(text))
	if !regexp.MustCompile("^" + pattern + "\n$").MatchString(w.Body.String()) {
		t.Errorf("answer = %s\nwant %s", w.Body, text)
	}
}

func TestHowALockIsSharedIsInEveryAnswer(t *testing.T) {
	for how, asked := range map[string]string{
		`"shared":true`: `"shared":true`, `"slots":1`: `"slots":1`, `"slots":10000`: `"slots":10000`, `"slots":5`: `"shared":false,"slots":5`,
		"": `"shared":false`,
	} {
		g := newRig(t, func(c *lockhttp.Config) { c.HeldStatus = 423 })
		member := ""
		if how != "" {
			member = how + ","
		}
		full := `{"id":N,"resource":"r","owner":"w1","token":N,` + member + `"acquired_at":"T","expires_at":"T","ttl_seconds":30,"metadata":{"a":1}}`
		wantText(t, g.send("POST", "/locks/r", share("w1", `"metadata":{"a":1},`+asked)), `{"acquired":true,"lock":`+full+`}`)
		wantText(t, g.send("POST", "/locks/r/renew", `{"owner":"w1","ttl_seconds":30}`), `{"lock":`+full+`}`)
		stranger := `{"resource":"r",` + member + `"acquired_at":"T","expires_at":"T","ttl_seconds":30}`
		wantText(t, g.send("GET", "/locks/r", ""), `{"lock":`+stranger+`}`)
		w := g.send("POST", "/locks/r", asksW2)
		want(t, w, 423, "held")
		if !regexp.MustCompile(`"holder":{` + member + `"acquired_at":` + instantText + `,"expires_at":` + instantText + `}`).MatchString(w.Body.String()) {
			t.Errorf("%s: answer = %s", how, w.Body)
		}
		if how == "" {
			continue
		}
		group := `{"id":N,"resource":"r","token":N,` + member + `"acquired_at":"T","expires_at":"T","ttl_seconds":30,"metadata":null}`
		wantText(t, g.send("GET", "/admin/locks/r", ""), `{"lock":`+group+`}`)
		wantText(t, g.send("GET", "/admin/locks", ""), `{"locks":[`+group+`],"next_cursor":null}`)
		token := parse(t, g.send("GET", "/admin/locks/r", "")).Lock.Token
		wantText(t, g.send("DELETE", fmt.Sprintf("/admin/locks/r?reason=x&token=%d", *token), ""), `{"lock":`+group+`}`)
		want(t, g.send("GET", "/locks/r", ""), 404, "not-held")
	}
}

func TestShowHoldersShowsAGroupWithoutAnOwner(t *testing.T) {
	g := newRig(t, func(c *lockhttp.Config) { c.ShowHolders = true })
	g.granted("r", share("w1", `"shared":true`))
	wantText(t, g.send("GET", "/locks/r", ""),
		`{"lock":{"id":N,"resource":"r","token":N,"shared":true,"acquired_at":"T","expires_at":"T","ttl_seconds":30,"metadata":null}}`)
	wantText(t, g.send("POST", "/locks/r", asksW2),
		`{"acquired":false,"resource":"r","retry_after_seconds":30,"holder":{"token":N,"shared":true,"acquired_at":"T","expires_at":"T"}}`)
}

// The group has no owner, so nobody is the group's owner.
func TestNobodyOwnsAGroup(t *testing.T) {
	g := newRig(t)
	token := g.granted("r", share("w1", `"shared":true`))
	stranger := `{"lock":{"resource":"r","shared":true,"acquired_at":"T","expires_at":"T","ttl_seconds":30}}`
	for _, query := range []string{"", "?owner=w1", "?owner=w2"} {
		wantText(t, g.send("GET", "/locks/r"+query, ""), stranger)
	}
	group := *parse(t, g.send("GET", "/admin/locks/r", "")).Lock.Token
	if group == token {
		t.Fatalf("the group and its share have one token, %d", token)
	}
	for _, c := range []call{
		{"GET", "/locks/r?owner=", "", nil},
		{"GET", "/locks/r/holders?owner=", "", nil},
		{"DELETE", "/locks/r?owner=", "", nil},
		{"DELETE", fmt.Sprintf("/locks/r?owner=&token=%d", group), "", nil},
		{"POST", "/locks/r/renew", fmt.Sprintf(`{"owner":"","ttl_seconds":9,"token":%d}`, group), nil},
		{"POST", "/locks/r", `{"owner":"","shared":true}`, nil},
	} {
		want(t, g.do(c), 422, "invalid-field", "owner")
	}
	want(t, g.send("DELETE", fmt.Sprintf("/locks/r?owner=w1&token=%d", group), ""), 403, "superseded")
	if got := g.send("GET", "/admin/locks?owner=w1", "").Body.String(); got != `{"locks":[],"next_cursor":null}`+"\n" {
		t.Errorf("list = %s", got)
	}
}

func TestAShareIsRenewedAndReleasedAsAnyLease(t *testing.T) {
	g := newRig(t)
	first, second := g.granted("r", share("w1", `"slots":2`)), g.granted("r", share("w2", `"slots":2`))
	want(t, g.send("POST", "/locks/r", share("w3", `"slots":2`)), 200)
	for _, body := range []string{`{"owner":"w1","ttl_seconds":60}`, fmt.Sprintf(`{"owner":"w1","ttl_seconds":60,"token":%d}`, first)} {
		w := g.send("POST", "/locks/r/renew", body)
		want(t, w, 200)
		if got := parse(t, w); *got.Lock.Token != first || got.Lock.TTLSeconds != 60 {
			t.Errorf("renewed = %s", w.Body)
		}
	}
	want(t, g.send("POST", "/locks/r/renew", `{"owner":"w3","ttl_seconds":60}`), 409, "not-owner")
	want(t, g.send("POST", "/locks/r/renew", fmt.Sprintf(`{"owner":"w2","ttl_seconds":60,"token":%d}`, first)), 409, "superseded")
	want(t, g.send("DELETE", fmt.Sprintf("/locks/r?owner=w2&token=%d", first), ""), 403, "superseded")
	want(t, g.send("DELETE", "/locks/r?owner=w3", ""), 403, "not-owner")
	want(t, g.send("DELETE", fmt.Sprintf("/locks/r?owner=w2&token=%d", second), ""), 204)
	g.granted("r", share("w3", `"slots":2`))
	want(t, g.send("DELETE", "/locks/r?owner=w1", ""), 204)
	want(t, g.send("DELETE", "/locks/r?owner=w3", ""), 204)
	if g.store.Rows() != 0 {
		t.Errorf("%d rows are left", g.store.Rows())
	}
}

// The same request sent again finds the same share.
func TestARetryFindsItsShare(t *testing.T) {
	g := newRig(t)
	first := g.send("POST", "/locks/r", share("w1", `"slots":2`), "Idempotency-Key: k1")
	second := g.send("POST", "/locks/r", share("w1", `"slots":2`), "Idempotency-Key: k1")
	if got, want := *parse(t, second).Lock.Token, *parse(t, first).Lock.Token; got != want {
		t.Errorf("token = %d, want %d", got, want)
	}
}

func TestAShareWhoseClientHasGoneIsGivenBack(t *testing.T) {
	g := newRig(t)
	g.granted("r", share("w1", `"shared":true`))
	ctx, cancel := context.WithCancel(t.Context())
	g.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
		defer cancel()
		return g.store.Store.Acquire(context.Background(), request)
	}
	g.ServeHTTP(httptest.NewRecorder(), call{"POST", "/locks/r", share("w2", `"shared":true`), nil}.request().WithContext(ctx))
	g.settle()
	shares, err := g.store.Store.Holders(t.Context(), "r", 10)
	if err != nil || len(shares) != 1 || shares[0].Owner != "w1" {
		t.Errorf("shares = %+v, %v; want that of w1", shares, err)
	}
}

func TestOtherSlotsAreRefusedAtOnce(t *testing.T) {
	own := " The owner of the request holds it itself: release it first."
	for _, row := range []struct{ held, asked, detail string }{
		{share("w1", `"shared":true`), share("w2", `"slots":5`), "held shared, and was asked for in 5 slots."},
		{share("w1", `"slots":3`), share("w2", `"slots":5`), "held in 3 slots, and was asked for in 5 slots."},
		{share("w1", `"slots":3`), share("w2", `"shared":true`), "held in 3 slots, and was asked for shared."},
		{share("w1", `"slots":3`), share("w1", `"shared":true`), "held in 3 slots, and was asked for shared."},
		{`{"owner":"w1"}`, share("w1", `"shared":true`), "held exclusively, and was asked for shared." + own},
		{share("w1", `"shared":true`), `{"owner":"w1"}`, "held shared, and was asked for exclusively." + own},
	} {
		for _, status := range []int{200, 423} {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, func(c *lockhttp.Config) { c.HeldStatus = status })
				token := g.granted("r", row.held)
				began := time.Now()
				for _, headers := range [][]string{nil, {"Prefer: wait=30"}} {
					w := g.send("POST", "/locks/r", row.asked, headers...)
					want(t, w, 409, "other-slots")
					var got struct{ Detail string }
					if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Detail != "The resource is "+row.detail {
						t.Errorf("detail = %q, want %q", got.Detail, row.detail)
					}
					if w.Header().Get("Retry-After") != "" {
						t.Errorf("Retry-After = %q", w.Header().Get("Retry-After"))
					}
				}
				if time.Since(began) != 0 {
					t.Errorf("answered after %v", time.Since(began))
				}
				g.settle()
				want(t, g.send("DELETE", fmt.Sprintf("/locks/r?owner=w1&token=%d", token), ""), 204)
				if g.store.Rows() != 0 {
					t.Errorf("%d rows are left", g.store.Rows())
				}
			})
		}
	}
}

func TestAStoreWithoutSharesTakesNoShareRequest(t *testing.T) {
	g := newRig(t, func(c *lockhttp.Config) { s := c.Store.(*stub); c.Store = noQueue{s, s, s} })
	for field, how := range map[string]string{"shared": `"shared":true`, "slots": `"slots":5`} {
		for _, headers := range [][]string{nil, {"Prefer: wait=3"}} {
			w := g.send("POST", "/locks/r", share("w1", how), headers...)
			want(t, w, 422, "invalid-field", field)
			if !strings.Contains(w.Body.String(), "has no shared leases") {
				t.Errorf("answer = %s", w.Body)
			}
		}
	}
	if g.store.Rows() != 0 {
		t.Error("a refused request made a row")
	}
	g.granted("r", share("w1", `"shared":false`))
	for _, target := range []string{"/locks/r/holders", "/admin/locks/r/holders"} {
		want(t, g.send("GET", target, ""), 501, "no-shares")
		want(t, g.send("GET", target+"?limit=x", ""), 400, "malformed-request", "limit")
	}
}

// What stands in the query by mistake must not be passed over: the resource would be held alone.
func TestSlotsDoNotBelongIntoTheQuery(t *testing.T) {
	g := newRig(t)
	for target, field := range map[string]string{"?slots=5": "slots", "?shared=true": "shared", "?Shared=true": "shared"} {
		want(t, g.send("POST", "/locks/r"+target, `{"owner":"w1"}`), 400, "malformed-request", field)
	}
	want(t, g.send("POST", "/locks/r/renew", `{"owner":"w1","ttl_seconds":9,"slots":5}`), 400, "malformed-request", "slots")
	if g.store.Rows() != 0 {
		t.Error("a refused request made a row")
	}
}
