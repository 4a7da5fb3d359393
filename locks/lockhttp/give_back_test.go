package lockhttp_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// deaf is a connection that is gone: nothing can be written.
type deaf struct{ *httptest.ResponseRecorder }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func (g *rig) settle() {
	g.t.Helper()
	if err := g.api.Close(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// Each way in which a grant's answer gets lost: without a key nobody would ever know of the grant, so it is given back;
// with one the client's retry must find it.
func TestLostAnswers(t *testing.T) {
	body := `{"owner":"w1"}`
	for name, lose := range map[string]func(g *rig, r *http.Request){
		"the answer cannot be written": func(g *rig, r *http.Request) {
			g.ServeHTTP(deaf{httptest.NewRecorder()}, r)
		},
		"the client went away while the store granted": func(g *rig, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				defer cancel()
				return g.store.Store.Acquire(context.WithoutCancel(ctx), request)
			}
			g.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		},
		"the store's answer was lost": func(g *rig, r *http.Request) {
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				_, _ = g.store.Store.Acquire(ctx, request)
				return locks.Lock{}, errors.New("connection reset")
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			want(g.t, w, 503, "unavailable")
		},
		"the store panicked after it granted": func(g *rig, r *http.Request) {
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				_, _ = g.store.Store.Acquire(ctx, request)
				panic("secret")
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			want(g.t, w, 503, "unavailable")
		},
		"the store ignored its context and granted late": func(g *rig, r *http.Request) {
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				time.Sleep(20 * time.Second)
				return g.store.Store.Acquire(context.WithoutCancel(ctx), request)
			}
			w := httptest.NewRecorder()
			start := time.Now()
			g.ServeHTTP(w, r)
			want(g.t, w, 503, "unavailable")
			if waited := time.Since(start); waited != 5*time.Second {
				g.t.Errorf("answered after %v, want 5s", waited)
			}
			time.Sleep(16 * time.Second)
		},
		"the database granted after the driver had given up": func(g *rig, r *http.Request) {
			g.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
				go func() {
					time.Sleep(time.Second)
					_, _ = g.store.Store.Acquire(context.Background(), request)
				}()
				return locks.Lock{}, errors.New("timeout")
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			want(g.t, w, 503, "unavailable")
			time.Sleep(1500 * time.Millisecond)
		},
		"giving back fails at first": func(g *rig, r *http.Request) {
			var tries atomic.Int32
			g.store.releaseAttempt = func(ctx context.Context, resource, owner, attempt string) error {
				if tries.Add(1) < 3 {
					return locks.ErrBusy
				}
				return g.store.Store.ReleaseAttempt(ctx, resource, owner, attempt)
			}
			g.ServeHTTP(deaf{httptest.NewRecorder()}, r)
			time.Sleep(3 * time.Second)
		},
		"the answer waited in a buffer that could not be sent": func(g *rig, r *http.Request) {
			g.ServeHTTP(stuck{httptest.NewRecorder(), errors.New("connection reset")}, r)
		},
	} {
		for _, key := range []string{"", "k1"} {
			t.Run(name+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t)
					r := call{"POST", "/locks/r", body, nil}.request()
					if key != "" {
						r.Header.Set("Idempotency-Key", key)
					}
					lose(g, r)
					g.settle()
					wantHolder := ""
					if key != "" {
						wantHolder = "w1"
					}
					if got := g.holder("r"); got != wantHolder {
						t.Errorf("holder = %q, want %q", got, wantHolder)
					}
				})
			})
		}
	}
}

func TestOnlyAnUnknownOutcomeIsGivenBack(t *testing.T) {
	for _, err := range []error{locks.ErrBusy, locks.Held("r", nil), &locks.InvalidError{Field: "owner"}, locks.ErrClosed} {
		g := newRig(t)
		g.store.fail(err)
		g.store.releaseAttempt = func(context.Context, string, string, string) error {
			t.Errorf("given back after %v", err)
			return nil
		}
		g.send("POST", "/locks/r", `{"owner":"w1"}`)
		g.settle()
	}
}

func TestAnEndedRequestIsNotSentToTheStore(t *testing.T) {
	g := newRig(t)
	g.store.acquire = func(context.Context, locks.Request) (locks.Lock, error) {
		t.Error("the store was asked")
		return locks.Lock{}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	g.ServeHTTP(w, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request().WithContext(ctx))
	want(t, w, 503, "unavailable")
}

// A client that hangs up right after it asked for a release gets its release.
func TestAReleaseIsFinishedWithoutItsClient(t *testing.T) {
	g := newRig(t)
	token := g.acquire("r", "w1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.ServeHTTP(httptest.NewRecorder(), call{"DELETE", "/locks/r?owner=w1", "", nil}.request().WithContext(ctx))
	if got := g.holder("r"); got != "" {
		t.Errorf("holder = %q (token %d), want nobody", got, token)
	}
}

func TestCloseRefusesAcquiresAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		release := make(chan struct{})
		g.store.releaseAttempt = func(context.Context, string, string, string) error { <-release; return nil }
		g.ServeHTTP(deaf{httptest.NewRecorder()}, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request())
		g.acquire("held", "w1")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.api.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close = %v, want context.DeadlineExceeded", err)
		}
		want(t, g.send("POST", "/locks/other", `{"owner":"w1"}`), 503, "unavailable")
		want(t, g.send("DELETE", "/locks/held?owner=w1", ""), 204)
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- g.api.Close(t.Context()) }()
		}
		synctest.Wait()
		close(release)
		if a, b := <-closed, <-closed; a != nil || b != nil {
			t.Errorf("Close = %v, %v", a, b)
		}
	})
}

func TestFaultsAreLoggedAndAnswersAreNot(t *testing.T) {
	var log bytes.Buffer
	g := newRig(t, func(c *lockhttp.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	g.acquire("r", "w1")
	g.send("POST", "/locks/r", `{"owner":"w2"}`)
	g.send("DELETE", "/locks/r?owner=w2", "")
	g.send("GET", "/locks/free", "")
	g.send("POST", "/locks/r", `{`)
	if log.Len() != 0 {
		t.Errorf("answers were logged: %s", log.String())
	}
	g.store.fail(errors.New("connection refused"))
	g.send("GET", "/locks/r", "")
	g.store.fail(locks.ErrBusy)
	g.send("GET", "/locks/r", "")
	g.store.get = func(context.Context, string) (locks.Lock, error) { panic("boom") }
	g.send("GET", "/locks/r", "")
	for _, text := range []string{"level=ERROR", "connection refused", "action=get", "resource=r", "level=WARN", "database is busy", "boom", "stack="} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("log lacks %q: %s", text, log.String())
		}
	}
}
