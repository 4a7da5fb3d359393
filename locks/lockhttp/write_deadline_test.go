package lockhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// deadlineWriter notes how far ahead the write deadlines are.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	ahead []time.Duration
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.ahead = append(w.ahead, time.Until(deadline))
	return nil
}

func underWriteTimeout(r *http.Request, timeout time.Duration) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: timeout}))
}

func TestTheWriteTimeoutCountsFromTheEndOfTheWait(t *testing.T) {
	for name, row := range map[string]struct {
		target string
		free   bool // after a second
		ahead  []time.Duration
	}{
		"granted":       {"/locks/r?wait=20s", true, []time.Duration{27 * time.Second, 7 * time.Second}},
		"refused":       {"/locks/r?wait=20s", false, []time.Duration{27 * time.Second, 7 * time.Second}},
		"without":       {"/locks/r", false, nil},
		"zero":          {"/locks/r?wait=0", false, nil},
		"that is taken": {"/locks/free?wait=20s", false, []time.Duration{27 * time.Second, 7 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.acquire("r", "w1")
				if row.free {
					time.AfterFunc(time.Second, func() { g.release("r", "w1") })
				}
				w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
				g.ServeHTTP(w, underWriteTimeout(call{"POST", row.target, asksW2, nil}.request(), 7*time.Second))
				want(t, w.ResponseRecorder, 200)
				if !slices.Equal(w.ahead, row.ahead) {
					t.Errorf("deadlines ahead = %v, want %v", w.ahead, row.ahead)
				}
				g.settle()
			})
		})
	}
}

// Where the deadline cannot be moved a longer wait would be for an answer that cannot arrive; the client is told.
func TestAWaitIsShorterThanAWriteTimeoutThatCannotBeMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.acquire("r", "w1")
		w := httptest.NewRecorder()
		began := time.Now()
		g.ServeHTTP(w, underWriteTimeout(call{"POST", "/locks/r", asksW2, []string{"Prefer: wait=20"}}.request(), 7*time.Second))
		if waited := time.Since(began); waited != 3500*time.Millisecond || w.Header().Get("Preference-Applied") != "wait=3" {
			t.Errorf("waited %v, Preference-Applied = %q", waited, w.Header().Get("Preference-Applied"))
		}
		g.settle()
	})
}

// Over real connections the answer arrives, however the server's timeouts are.
func TestAWaitLongerThanTheServersTimeouts(t *testing.T) {
	const short = 300 * time.Millisecond
	var tests sync.WaitGroup // they only wait, so all at once
	for name, change := range map[string]func(server *httptest.Server){
		"WriteTimeout": func(server *httptest.Server) { server.Config.WriteTimeout = short },
		"both":         func(server *httptest.Server) { server.Config.ReadTimeout, server.Config.WriteTimeout = short, short },
		"HTTP/2":       func(server *httptest.Server) { server.Config.WriteTimeout = short; server.EnableHTTP2 = true },
	} {
		for how, query := range map[string]string{"refused": "?wait=1s", "granted": "?wait=60s"} {
			tests.Go(func() {
				t.Run(name+", "+how, func(t *testing.T) {
					g := newRig(t)
					g.acquire("r", "w1")
					server := httptest.NewUnstartedServer(g)
					change(server)
					if server.EnableHTTP2 {
						server.StartTLS()
					} else {
						server.Start()
					}
					defer server.Close()
					if how == "granted" {
						time.AfterFunc(time.Second, func() { g.release("r", "w1") })
					}
					response, err := server.Client().Post(server.URL+"/locks/r"+query, "application/json", strings.NewReader(asksW2))
					if err != nil {
						t.Fatal(err)
					}
					defer response.Body.Close()
					body, err := io.ReadAll(response.Body)
					if err != nil || !strings.Contains(string(body), fmt.Sprintf(`"acquired":%v`, how == "granted")) {
						t.Errorf("answer = %d %s %v", response.StatusCode, body, err)
					}
					g.settle()
				})
			})
		}
	}
	tests.Wait()
}

// The body was read, so the server notices when the client goes, and gives the place up.
func TestAClientThatGoesEndsItsWait(t *testing.T) {
	left := make(chan struct{}, 1)
	q := &queued{enqueue: func(locks.Request, int) (locks.Place, error) { return &leavingPlace{left: left}, nil }}
	g := newRig(t, withQueue(q), func(c *lockhttp.Config) { c.MaxWait = time.Hour })
	g.acquire("r", "w1")
	tried := make(chan struct{}, 10)
	g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
		tried <- struct{}{}
		return g.store.Store.Acquire(ctx, request)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/locks/r?wait=1h", strings.NewReader(asksW2))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	go func() {
		if response, err := server.Client().Do(r); err == nil {
			_ = response.Body.Close()
			t.Errorf("answer = %d", response.StatusCode)
		}
	}()
	for i, signal := range []chan struct{}{tried, tried, left} { // it tries again when it has its place
		select {
		case <-signal:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing happens")
		}
		if i == 1 {
			cancel()
		}
	}
}

type leavingPlace struct {
	place
	left chan struct{}
}

func (p *leavingPlace) Leave(context.Context) error { p.left <- struct{}{}; return nil }
