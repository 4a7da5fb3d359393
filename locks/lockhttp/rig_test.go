package lockhttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// stub is a memstore whose calls a test can put something before.
type stub struct {
	*memstore.Store
	acquire        func(ctx context.Context, request locks.Request) (locks.Lock, error)
	renew          func(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error)
	release        func(ctx context.Context, grant locks.Grant) error
	releaseAttempt func(ctx context.Context, resource, owner, attempt string) error
	get            func(ctx context.Context, resource string) (locks.Lock, error)
	list           func(ctx context.Context, query locks.ListQuery) (locks.Page, error)
	force          func(ctx context.Context, resource string, token int64) (locks.Lock, error)
	holders        func(ctx context.Context, resource string, limit int) ([]locks.Lock, error)
}

func (s *stub) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	if s.acquire != nil {
		return s.acquire(ctx, request)
	}
	return s.Store.Acquire(ctx, request)
}

func (s *stub) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if s.renew != nil {
		return s.renew(ctx, grant, ttl)
	}
	return s.Store.Renew(ctx, grant, ttl)
}

func (s *stub) Release(ctx context.Context, grant locks.Grant) error {
	if s.release != nil {
		return s.release(ctx, grant)
	}
	return s.Store.Release(ctx, grant)
}

func (s *stub) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	if s.releaseAttempt != nil {
		return s.releaseAttempt(ctx, resource, owner, attempt)
	}
	return s.Store.ReleaseAttempt(ctx, resource, owner, attempt)
}

func (s *stub) Get(ctx context.Context, resource string) (locks.Lock, error) {
	if s.get != nil {
		return s.get(ctx, resource)
	}
	return s.Store.Get(ctx, resource)
}

func (s *stub) List(ctx context.Context, query locks.ListQuery) (locks.Page, error) {
	if s.list != nil {
		return s.list(ctx, query)
	}
	return s.Store.List(ctx, query)
}

func (s *stub) ForceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error) {
	if s.force != nil {
		return s.force(ctx, resource, token)
	}
	return s.Store.ForceRelease(ctx, resource, token)
}

func (s *stub) Holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error) {
	if s.holders != nil {
		return s.holders(ctx, resource, limit)
	}
	return s.Store.Holders(ctx, resource, limit)
}

// fail makes every call of the store end with err.
func (s *stub) fail(err error) {
	s.acquire = func(context.Context, locks.Request) (locks.Lock, error) { return locks.Lock{}, err }
	s.renew = func(context.Context, locks.Grant, time.Duration) (locks.Lock, error) { return locks.Lock{}, err }
	s.release = func(context.Context, locks.Grant) error { return err }
	s.get = func(context.Context, string) (locks.Lock, error) { return locks.Lock{}, err }
	s.list = func(context.Context, locks.ListQuery) (locks.Page, error) { return locks.Page{}, err }
	s.force = func(context.Context, string, int64) (locks.Lock, error) { return locks.Lock{}, err }
	s.holders = func(context.Context, string, int) ([]locks.Lock, error) { return nil, err }
}

// rig is both APIs on one store, served as a host on net/http would.
type rig struct {
	t     *testing.T
	store *stub
	api   *lockhttp.API
	http.Handler
	audited []lockhttp.ForceRelease
}

func newRig(t *testing.T, changes ...func(*lockhttp.Config)) *rig {
	t.Helper()
	g := &rig{t: t, store: &stub{Store: memstore.New()}}
	config := lockhttp.Config{Store: g.store, Anyone: true}
	for _, change := range changes {
		change(&config)
	}
	var err error
	if g.api, err = lockhttp.New(config); err != nil {
		t.Fatal(err)
	}
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
		Store:     config.Store,
		Authorize: func(*http.Request, lockhttp.Action, string) error { return nil },
		Audit:     func(_ context.Context, release lockhttp.ForceRelease) { g.audited = append(g.audited, release) },
		CallLimit: config.CallLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", g.api.Handler("/locks"))
	mux.Handle("/admin/locks", admin.Handler("/admin/locks"))
	mux.Handle("/admin/locks/", admin.Handler("/admin/locks"))
	g.Handler = mux
	return g
}

// call is one request: headers are "Name: value", and a body is JSON unless they say else.
type call struct {
	method, target, body string
	headers              []string
}

func (c call) request() *http.Request {
	var r *http.Request
	if c.body == "" {
		r = httptest.NewRequest(c.method, c.target, nil)
	} else {
		r = httptest.NewRequest(c.method, c.target, strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/json")
	}
	for _, header := range c.headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Content-Type" {
			r.Header.Del(name)
			if value == "" {
				continue
			}
		}
		r.Header.Add(name, value)
	}
	return r
}

// do sends the request and checks what holds for every answer.
func (g *rig) do(c call) *httptest.ResponseRecorder {
	g.t.Helper()
	w := httptest.NewRecorder()
	g.ServeHTTP(w, c.request())
	checkAnswer(g.t, c.method, w)
	return w
}

// send is do for method, target and body.
func (g *rig) send(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	g.t.Helper()
	return g.do(call{method, target, body, headers})
}

func checkAnswer(t *testing.T, method string, w *httptest.ResponseRecorder) {
	t.Helper()
	body := w.Body.String()
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", got)
	}
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options = %q, want nosniff", got)
	}
	for _, text := range []string{"locks: ", "lockhttp: ", "context ", "invalid character", "secret"} {
		if strings.Contains(body, text) {
			t.Errorf("the answer has a Go error's text, %q: %s", text, body)
		}
	}
	if method == http.MethodHead || w.Code == http.StatusNoContent {
		if body != "" {
			t.Errorf("%s %d has a body: %s", method, w.Code, body)
		}
		return
	}
	want := "application/json"
	if w.Code >= 400 {
		want = "application/problem+json"
	}
	if got := w.Header().Get("Content-Type"); got != want {
		t.Errorf("Content-Type = %q, want %q", got, want)
	}
	var members map[string]any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&members); err != nil {
		t.Errorf("the answer is not a JSON object: %v: %s", err, body)
	}
	if w.Code >= 400 {
		if members["status"] != json.Number(strconv.Itoa(w.Code)) {
			t.Errorf("status member = %v, want %d", members["status"], w.Code)
		}
		if title, _ := members["title"].(string); title == "" {
			t.Errorf("problem without title: %s", body)
		}
	}
	after, ok := members["retry_after_seconds"].(json.Number)
	if got := w.Header().Get("Retry-After"); got != after.String() || ok && (got == "0" || got[0] == '-') {
		t.Errorf("retry_after_seconds = %v, Retry-After = %q", members["retry_after_seconds"], w.Header().Get("Retry-After"))
	}
}

// want compares status, and the problem's type (without the common prefix) and field where they are given.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, problem ...string) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status = %d, want %d: %s", w.Code, status, w.Body)
	}
	var got struct{ Type, Field string }
	if len(problem) > 0 {
		_ = json.Unmarshal(w.Body.Bytes(), &got)
		if got.Type != lockhttp.TypePrefix+problem[0] {
			t.Errorf("type = %q, want %s%s", got.Type, lockhttp.TypePrefix, problem[0])
		}
	}
	if len(problem) > 1 && got.Field != problem[1] {
		t.Errorf("field = %q, want %q: %s", got.Field, problem[1], w.Body)
	}
}

// lockOf reads {"lock":{…}}.
type lockOf struct {
	Acquired bool `json:"acquired"`
	Lock     struct {
		ID         int64           `json:"id"`
		Resource   string          `json:"resource"`
		Owner      *string         `json:"owner"`
		Token      *int64          `json:"token"`
		AcquiredAt string          `json:"acquired_at"`
		ExpiresAt  string          `json:"expires_at"`
		TTLSeconds int             `json:"ttl_seconds"`
		Metadata   json.RawMessage `json:"metadata"`
	} `json:"lock"`
}

func parse(t *testing.T, w *httptest.ResponseRecorder) lockOf {
	t.Helper()
	var got lockOf
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// acquire acquires for 30 s and returns the token.
func (g *rig) acquire(resource, owner string) int64 {
	g.t.Helper()
	lock, err := g.store.Store.Acquire(g.t.Context(), locks.Request{
		Resource: resource, Owner: owner, Attempt: owner + time.Now().String(), TTL: 30 * time.Second,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return lock.Token
}

// holder returns who holds the resource in the store, "" for nobody.
func (g *rig) holder(resource string) string {
	lock, err := g.store.Store.Get(context.Background(), resource)
	if err != nil {
		return ""
	}
	return lock.Owner
}
