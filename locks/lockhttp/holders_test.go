package lockhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestWhoShares(t *testing.T) {
	const hidden = `{"resource":"a/b","slots":3,"acquired_at":"T","expires_at":"T","ttl_seconds":30}`
	shown := func(owner, metadata string) string {
		return `{"id":N,"resource":"a/b","owner":"` + owner + `","token":N,"slots":3,"acquired_at":"T","expires_at":"T","ttl_seconds":30,"metadata":` + metadata + `}`
	}
	w1, w2, w3 := shown("w1", "null"), shown("w2", `{"a":1}`), shown("w3", "null")
	for _, row := range []struct {
		target, resource string
		show             bool
		want             string
	}{
		{"/locks/a%2Fb/holders", "a/b", false, hidden + "," + hidden + "," + hidden},
		{"/locks/a%2Fb/holders?limit=2", "a/b", false, hidden + "," + hidden},
		{"/locks/a%2Fb/holders?owner=w2", "a/b", false, w2},
		{"/locks/a%2Fb/holders?owner=w2&limit=1", "a/b", false, w2}, // wherever it is
		{"/locks/a%2Fb/holders?owner=nobody", "a/b", false, ""},
		{"/locks/a%2Fb/holders", "a/b", true, w3 + "," + w1 + "," + w2},
		{"/locks/a%2Fb/holders?owner=w1", "a/b", true, w1},
		{"/locks/free/holders", "free", true, ""},
		{"/locks/alone/holders", "alone", true, ""},
		{"/admin/locks/a%2Fb/holders", "a/b", false, w3 + "," + w1 + "," + w2},
		{"/admin/locks/a%2Fb/holders?limit=1", "a/b", false, w3},
		{"/admin/locks/a%2Fb/holders?owner=w2", "a/b", false, w2},
		{"/admin/locks/free/holders", "free", false, ""},
		{"/admin/locks/alone/holders", "alone", false, ""},
	} {
		g := newRig(t, func(c *lockhttp.Config) { c.ShowHolders = row.show })
		g.granted("alone", `{"owner":"w1"}`)
		for _, body := range []string{share("w3", `"slots":3`), share("w1", `"slots":3`), share("w2", `"slots":3,"metadata":{"a":1}`)} {
			g.granted("a%2Fb", body)
		}
		w := g.send("GET", row.target, "")
		want(t, w, 200)
		wantText(t, w, `{"resource":"`+row.resource+`","holders":[`+row.want+`]}`)
		head := g.send("HEAD", row.target, "")
		want(t, head, 200)
		if got, want := head.Header().Get("Content-Length"), fmt.Sprint(w.Body.Len()); got != want {
			t.Errorf("HEAD Content-Length = %s, want %s", got, want)
		}
	}
}

func TestWhoSharesIsAskedStrictly(t *testing.T) {
	g := newRig(t)
	for _, prefix := range []string{"/locks/", "/admin/locks/"} {
		for _, row := range []struct {
			target  string
			status  int
			problem []string
		}{
			{"%2E%2E/holders", 422, []string{"invalid-field", "resource"}},
			{"r/holders?limit=0", 422, []string{"invalid-field", "limit"}},
			{"r/holders?limit=1001", 422, []string{"invalid-field", "limit"}},
			{"r/holders?limit=x", 400, []string{"malformed-request", "limit"}},
			{"r/holders?owner=", 422, []string{"invalid-field", "owner"}},
			{"r/holders?owner=a&owner=b", 400, []string{"malformed-request", "owner"}},
			{"r/holders?token=7", 400, []string{"malformed-request", "token"}},
			{"r/holders?limit=1000&other=1", 200, nil},
		} {
			want(t, g.send("GET", prefix+row.target, ""), row.status, row.problem...)
		}
		w := g.send("POST", prefix+"r/holders", "{}")
		if want(t, w, 405, "method-not-allowed"); w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("Allow = %q", w.Header().Get("Allow"))
		}
	}
	want(t, g.send("GET", "/locks/http:x/holders", ""), 403, "reserved-resource", "resource")
	want(t, g.send("GET", "/admin/locks/http:x/holders", ""), 200)
}

func TestWhoMaySeeWhoShares(t *testing.T) {
	var asked []string
	authorize := func(_ *http.Request, action lockhttp.Action, resource string) error {
		asked = append(asked, fmt.Sprintf("%s %s", action, resource))
		return errors.New("no")
	}
	g := newRig(t, func(c *lockhttp.Config) { c.Anyone, c.Authorize = false, authorize })
	want(t, g.send("GET", "/locks/a%2Fb/holders?limit=x", ""), 403, "forbidden")
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{Store: g.store, Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	admin.Handler("/admin/locks").ServeHTTP(w, call{"GET", "/admin/locks/a%2Fb/holders?limit=x", "", nil}.request())
	want(t, w, 403, "forbidden")
	if got, want := fmt.Sprint(asked), "[holders a/b list_holders a/b]"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}
