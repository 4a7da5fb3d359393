package lockhttp_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestAcquireAnswersInTheDocumentedOrder(t *testing.T) {
	g := newRig(t)
	w := g.send("POST", "/locks/job:42", `{"owner":"w1","ttl_seconds":30,"metadata":{"a":"<&>","n":1.50}}`)
	want(t, w, 200)
	pattern := `^{"acquired":true,"lock":{"id":\d+,"resource":"job:42","owner":"w1","token":\d+,` +
		`"acquired_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","expires_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",` +
		`"ttl_seconds":30,"metadata":{"a":"<&>","n":1.50}}}` + "\n$"
	if !regexp.MustCompile(pattern).MatchString(w.Body.String()) {
		t.Errorf("answer = %s", w.Body)
	}
	if got := w.Header().Get("Retry-After"); got != "" {
		t.Errorf("Retry-After = %q on a grant", got)
	}
}

func TestAcquireWithoutMetadataSaysNullAndTakesTheDefaultTTL(t *testing.T) {
	g := newRig(t)
	got := parse(t, g.send("POST", "/locks/r", `{"owner":"w1"}`))
	if !got.Acquired || string(got.Lock.Metadata) != "null" || got.Lock.TTLSeconds != 30 {
		t.Errorf("lock = %+v", got.Lock)
	}
}

func TestAcquireWhileHeld(t *testing.T) {
	for _, status := range []int{0, 200, 423, 409} {
		for _, show := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d show=%v", status, show), func(t *testing.T) {
				g := newRig(t, func(c *lockhttp.Config) { c.HeldStatus, c.ShowHolders = status, show })
				token := g.acquire("r", "w1")
				w := g.send("POST", "/locks/r", `{"owner":"w2"}`)
				want(t, w, max(status, 200))
				if got := w.Header().Get("Retry-After"); got != "30" {
					t.Errorf("Retry-After = %q, want 30", got)
				}
				holder := `{"acquired_at":"[^"]+Z","expires_at":"[^"]+Z"}`
				if show {
					holder = fmt.Sprintf(`{"owner":"w1","token":%d,"acquired_at":"[^"]+Z","expires_at":"[^"]+Z","metadata":null}`, token)
				}
				pattern := `"acquired":false,"resource":"r","retry_after_seconds":30,"holder":` + holder + "}\n$"
				if w.Code == 200 {
					pattern = "^{" + pattern
				} else {
					pattern = fmt.Sprintf(`^{"type":"urn:rowlease:problem:held","title":"[^"]+","status":%d,"detail":"[^"]+",`, status) + pattern
				}
				if !regexp.MustCompile(pattern).MatchString(w.Body.String()) {
					t.Errorf("answer = %s\nwant %s", w.Body, pattern)
				}
				if g.holder("r") != "w1" {
					t.Error("the holder lost its lease")
				}
			})
		}
	}
}

func TestAcquireWhileHeldByAnUnknownHolder(t *testing.T) {
	g := newRig(t)
	for _, err := range []error{locks.Held("r", nil), locks.ErrHeld} {
		g.store.fail(err)
		w := g.send("POST", "/locks/r", `{"owner":"w2"}`)
		want(t, w, 200)
		if got, want := w.Body.String(), `{"acquired":false,"resource":"r","retry_after_seconds":1,"holder":null}`+"\n"; got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
		if got := w.Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After = %q, want 1", got)
		}
	}
}

func TestAcquireAgainIsANewGrantInPlace(t *testing.T) {
	g := newRig(t)
	first := parse(t, g.send("POST", "/locks/r", `{"owner":"w1"}`)).Lock
	second := parse(t, g.send("POST", "/locks/r", `{"owner":"w1"}`)).Lock
	if second.ID != first.ID || *second.Token <= *first.Token {
		t.Errorf("id %d → %d, token %d → %d", first.ID, second.ID, *first.Token, *second.Token)
	}
}

func TestTheIdempotencyKeyFindsTheSameGrant(t *testing.T) {
	g := newRig(t)
	acquire := func(headers ...string) lockOf {
		w := g.send("POST", "/locks/r", `{"owner":"w1"}`, headers...)
		want(t, w, 200)
		return parse(t, w)
	}
	first := acquire(`Idempotency-Key: "k1"`)
	again := acquire(`Idempotency-Key: "k1"`)
	if *again.Lock.Token != *first.Lock.Token || again.Lock.AcquiredAt != first.Lock.AcquiredAt {
		t.Errorf("the same key got another grant: %+v, %+v", first.Lock, again.Lock)
	}
	if other := acquire(`Idempotency-Key: k1`); *other.Lock.Token <= *first.Lock.Token { // quotes are part of it
		t.Errorf("another key got token %d after %d", *other.Lock.Token, *first.Lock.Token)
	}
}

func TestIdempotencyKeyRules(t *testing.T) {
	g := newRig(t)
	body := `{"owner":"w1"}`
	want(t, g.send("POST", "/locks/r", body, "Idempotency-Key: a", "Idempotency-Key: a"), 400, "malformed-request", "Idempotency-Key")
	for _, key := range []string{"", strings.Repeat("k", 256), "a\x01b", "a\xff"} {
		want(t, g.send("POST", "/locks/r", body, "Idempotency-Key: "+key), 422, "invalid-field", "Idempotency-Key")
	}
	want(t, g.send("POST", "/locks/r", body, "Idempotency-Key: "+strings.Repeat("k", 255)), 200)
}

func TestTTLLimits(t *testing.T) {
	g := newRig(t, func(c *lockhttp.Config) { c.MinTTL, c.MaxTTL = 5*time.Second, 20*time.Second })
	for ttl, status := range map[int]int{4: 422, 5: 200, 20: 200, 21: 422} {
		want(t, g.send("POST", "/locks/r", fmt.Sprintf(`{"owner":"w1","ttl_seconds":%d}`, ttl)), status)
	}
	if got := parse(t, g.send("POST", "/locks/r", `{"owner":"w1"}`)).Lock.TTLSeconds; got != 20 {
		t.Errorf("ttl_seconds = %d, want 20: the default within the limits", got)
	}
}
