package lockhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestGetShowsOnlyTheOwnerEverything(t *testing.T) {
	g := newRig(t)
	want(t, g.send("POST", "/locks/r", `{"owner":"w 1","metadata":{"a":1}}`), 200)
	redacted := regexp.MustCompile(`^{"lock":{"resource":"r","acquired_at":"[^"]+Z","expires_at":"[^"]+Z","ttl_seconds":30}}` + "\n$")
	full := regexp.MustCompile(`^{"lock":{"id":\d+,"resource":"r","owner":"w 1","token":\d+,"acquired_at":"[^"]+Z","expires_at":"[^"]+Z","ttl_seconds":30,"metadata":{"a":1}}}` + "\n$")
	for query, pattern := range map[string]*regexp.Regexp{
		"": redacted, "?owner=w2": redacted, "?owner=w": redacted, "?owner=W%201": redacted, "?other=1": redacted,
		"?owner=w%201": full, "?owner=w+1": full, "?owner=w%201&owner=w+1": full,
	} {
		w := g.send("GET", "/locks/r"+query, "")
		want(t, w, 200)
		if !pattern.MatchString(w.Body.String()) {
			t.Errorf("GET %s = %s", query, w.Body)
		}
		head := g.send("HEAD", "/locks/r"+query, "")
		want(t, head, 200)
		if got, want := head.Header().Get("Content-Length"), fmt.Sprint(w.Body.Len()); got != want {
			t.Errorf("HEAD Content-Length = %s, want %s", got, want)
		}
	}
	for _, name := range []string{"token", "ttl_seconds", "metadata", "shared", "slots", "reason", "prefix", "limit", "cursor", "Limit"} {
		want(t, g.send("GET", "/locks/r?"+name+"=1", ""), 400, "malformed-request", strings.ToLower(name))
	}
	want(t, g.send("GET", "/locks/r?owner=", ""), 422, "invalid-field", "owner")
	want(t, g.send("GET", "/locks/r?owner=a&owner=b", ""), 400, "malformed-request", "owner")
	want(t, g.send("GET", "/locks/r?Owner=a", ""), 400, "malformed-request", "owner")
	want(t, g.send("GET", "/locks/r?owner=%zz", ""), 400, "malformed-request", "query")
	want(t, g.send("GET", "/locks/r?owner=%ff", ""), 422, "invalid-field", "owner")

	g = newRig(t, func(c *lockhttp.Config) { c.ShowHolders = true })
	g.acquire("r", "w1")
	if got := parse(t, g.send("GET", "/locks/r", "")); got.Lock.Owner == nil || *got.Lock.Owner != "w1" {
		t.Errorf("ShowHolders: lock = %+v", got.Lock)
	}
}

// Ids and tokens may run in step, so that a stranger who saw an id could name the token.
func TestAStrangerSeesFourMembers(t *testing.T) {
	g := newRig(t)
	g.acquire("r", "w1")
	var got struct{ Lock map[string]any }
	if err := json.Unmarshal(g.send("GET", "/locks/r", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(got.Lock))
	if want := []string{"acquired_at", "expires_at", "resource", "ttl_seconds"}; !slices.Equal(names, want) {
		t.Errorf("members = %v, want %v", names, want)
	}
}

func TestGetOfWhatIsNotHeld(t *testing.T) {
	g := newRig(t)
	want(t, g.send("GET", "/locks/r", ""), 404, "not-held")
	g.acquire("r", "w1")
	g.store.Expire("r")
	want(t, g.send("GET", "/locks/r?owner=w1", ""), 404, "not-held")
	want(t, g.send("HEAD", "/locks/r", ""), 404)
}

func TestMetadataWrittenByHandCannotBreakAnAnswer(t *testing.T) {
	g := newRig(t)
	for _, broken := range []string{"", "{", "{}{}"} {
		g.store.get = func(context.Context, string) (locks.Lock, error) {
			return locks.Lock{ID: 1, Resource: "r", Owner: "w1", Token: 1, Remaining: 1, Metadata: json.RawMessage(broken)}, nil
		}
		got := parse(t, g.send("GET", "/locks/r?owner=w1", ""))
		if string(got.Lock.Metadata) != "null" || got.Lock.TTLSeconds != 1 {
			t.Errorf("lock = %+v", got.Lock)
		}
	}
}
