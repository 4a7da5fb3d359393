package lockhttp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

var _ json.Marshaler = lockhttp.Problem{}

func TestHeldProblem(t *testing.T) {
	since := time.Date(2026, 5, 1, 12, 0, 0, 1000, time.FixedZone("", 3600))
	holder := &locks.Lock{
		Resource: "r", Owner: "secret owner", Token: 424242, AcquiredAt: since, ExpiresAt: since.Add(30 * time.Second),
		Remaining: 1500 * time.Millisecond, Metadata: json.RawMessage(`{"secret":1}`),
	}
	for name, row := range map[string]struct {
		held *locks.HeldError
		want string
	}{
		"known": {
			locks.Held("r", holder),
			`"status":423,"detail":"Somebody else holds the resource, or is just changing its lease.","acquired":false,"retry_after_seconds":2,` +
				`"holder":{"acquired_at":"2026-05-01T11:00:00.000001Z","expires_at":"2026-05-01T11:00:30.000001Z"}}`,
		},
		"unknown": {
			locks.Held("r", nil),
			`"status":423,"detail":"Somebody else holds the resource, or is just changing its lease.","acquired":false,"retry_after_seconds":1,"holder":null}`,
		},
		"nothing": {
			nil,
			`"status":423,"detail":"Somebody else holds the resource, or is just changing its lease.","acquired":false,"retry_after_seconds":1,"holder":null}`,
		},
	} {
		p := lockhttp.Held(row.held, http.StatusLocked)
		got, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"type":"urn:rowlease:problem:held","title":"The resource is held",` + row.want; string(got) != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
		header := http.Header{}
		p.SetHeader(header)
		if header.Get("Retry-After") == "" || header.Get("Content-Type") != lockhttp.ProblemMediaType || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: header = %v", name, header)
		}
	}
}

// What middleware refuses has the statuses and titles of the table.
func TestProblemsForMiddleware(t *testing.T) {
	for _, row := range []struct {
		problem       lockhttp.Problem
		urn           string
		status, after int
		field, detail string
	}{
		{lockhttp.Malformed("Idempotency-Key", "d"), lockhttp.TypeMalformed, 400, 0, "Idempotency-Key", "d"},
		{lockhttp.TooLarge("d"), lockhttp.TypeTooLarge, 413, 0, "body", "d"},
		{lockhttp.Lost(), lockhttp.TypeLost, 503, 1, "", lockhttp.Lost().Detail},
	} {
		p := row.problem
		if p.Type != row.urn || p.Status != row.status || p.RetryAfterSeconds != row.after || p.Field != row.field ||
			p.Detail != row.detail || p.Detail == "" || p.Title == "" {
			t.Errorf("problem = %+v, want %+v", p, row)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for left, want := range map[time.Duration]int{
		-time.Second: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 1, time.Second + time.Microsecond: 2,
		1500 * time.Millisecond: 2, 30 * time.Second: 30, 30*time.Second + 40: 30, 24 * time.Hour: 86400,
	} {
		if got := lockhttp.RetryAfter(left); got != want {
			t.Errorf("RetryAfter(%v) = %d, want %d", left, got, want)
		}
	}
}

func TestProblemOfKeepsTheErrorToItself(t *testing.T) {
	p := lockhttp.ProblemOf(errors.New("pq: password authentication failed for user app"), lockhttp.ActionAcquire)
	w := httptest.NewRecorder()
	if err := p.Write(w, httptest.NewRequest(http.MethodGet, "/", nil)); err != nil {
		t.Fatal(err)
	}
	if w.Code != 503 || strings.Contains(w.Body.String(), "pq") || w.Header().Get("Retry-After") == "" {
		t.Errorf("answer = %d %s", w.Code, w.Body)
	}
}

// A problem inside another encoder (echo's, say) is still one JSON object.
func TestProblemInsideAnotherEncoder(t *testing.T) {
	var buffer bytes.Buffer
	p := lockhttp.Problem{Type: lockhttp.TypeInvalid, Title: "t", Status: 422, Detail: "<a>", Field: "owner"}
	if err := json.NewEncoder(&buffer).Encode(p); err != nil {
		t.Fatal(err)
	}
	want := `{"type":"urn:rowlease:problem:invalid-field","title":"t","status":422,"detail":"\u003ca\u003e","field":"owner"}` + "\n"
	if buffer.String() != want {
		t.Errorf("got %s, want %s", buffer.String(), want)
	}
}
