package lockhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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

// stuck takes what is written into its buffer, and tells at the flush what became of it.
type stuck struct {
	*httptest.ResponseRecorder
	err error
}

func (s stuck) FlushError() error { return s.err }

// A writer that cannot tell does no harm, and neither does a client that hangs up because it has its answer.
func TestADeliveredAnswerIsNotGivenBack(t *testing.T) {
	for name, serve := range map[string]func(g *rig, r *http.Request) *httptest.ResponseRecorder{
		"flushing is not supported": func(g *rig, r *http.Request) *httptest.ResponseRecorder {
			w := stuck{httptest.NewRecorder(), fmt.Errorf("wrapped: %w", http.ErrNotSupported)}
			g.ServeHTTP(w, r)
			return w.ResponseRecorder
		},
		"the client hangs up when it has read the answer": func(g *rig, r *http.Request) *httptest.ResponseRecorder {
			ctx, cancel := context.WithCancel(r.Context())
			w := hangUp{httptest.NewRecorder(), cancel}
			g.ServeHTTP(w, r.WithContext(ctx))
			return w.ResponseRecorder
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			w := serve(g, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request())
			want(t, w, 200)
			if got, want := w.Header().Get("Content-Length"), fmt.Sprint(w.Body.Len()); got != want {
				t.Errorf("Content-Length = %q, want %s", got, want)
			}
			g.settle()
			if got := g.holder("r"); got != "w1" {
				t.Errorf("holder = %q, want w1", got)
			}
		})
	}
}

type hangUp struct {
	*httptest.ResponseRecorder
	cancel func()
}

func (h hangUp) FlushError() error {
	h.cancel()
	return nil
}

// Clients that reset the connection while the store grants leave no lease, whoever notices it: net/http or the flush.
func TestResetConnectionsLeaveNoLease(t *testing.T) {
	g := newRig(t)
	entered, closed := make(chan struct{}), make(chan time.Duration)
	g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
		entered <- struct{}{}
		time.Sleep(<-closed)
		return g.store.Store.Acquire(context.WithoutCancel(ctx), request)
	}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	const n = 50
	for i := range n {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := `{"owner":"w1"}`
		if _, err := fmt.Fprintf(connection, "POST /locks/r%d HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body); err != nil {
			t.Fatal(err)
		}
		<-entered
		if err := connection.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		_ = connection.Close()
		closed <- time.Duration(i%4) * time.Millisecond
	}
	left := n
	for deadline := time.Now().Add(10 * time.Second); left > 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		left = g.store.Rows()
	}
	if left > 0 {
		t.Errorf("%d leases that nobody knows of", left)
	}
}

// In an outage only so many grants wait to be given back; the others end by time, and the host is told.
func TestGivingBackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g := newRig(t, func(c *lockhttp.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		healthy := make(chan struct{})
		g.store.releaseAttempt = func(ctx context.Context, resource, owner, attempt string) error {
			<-healthy
			return g.store.Store.ReleaseAttempt(ctx, resource, owner, attempt)
		}
		for i := range 1010 {
			g.ServeHTTP(deaf{httptest.NewRecorder()}, call{"POST", fmt.Sprintf("/locks/r%d", i), `{"owner":"w1"}`, nil}.request())
		}
		synctest.Wait()
		if got := strings.Count(log.String(), "too many grants wait"); got != 10 {
			t.Errorf("%d warnings, want 10", got)
		}
		close(healthy)
		g.settle()
		if got := g.store.Rows(); got != 10 {
			t.Errorf("%d leases are left, want 10", got)
		}
	})
}

func TestOneLookIsEnoughWhereTheGrantIsKnown(t *testing.T) {
	for name, row := range map[string]struct {
		serve func(g *rig, r *http.Request)
		looks int32
	}{
		"granted": {func(g *rig, r *http.Request) { g.ServeHTTP(deaf{httptest.NewRecorder()}, r) }, 1},
		"unknown": {func(g *rig, r *http.Request) {
			g.store.fail(io.ErrUnexpectedEOF)
			g.ServeHTTP(httptest.NewRecorder(), r)
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				var looks atomic.Int32
				g.store.releaseAttempt = func(context.Context, string, string, string) error {
					looks.Add(1)
					return locks.ErrNotHeld
				}
				row.serve(g, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request())
				time.Sleep(time.Minute)
				if got := looks.Load(); got != row.looks {
					t.Errorf("%d looks, want %d", got, row.looks)
				}
			})
		})
	}
}

// Close waits for one more look, and not for the pauses between looks.
func TestCloseDoesNotWaitOutPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		var looks atomic.Int32
		g.store.releaseAttempt = func(ctx context.Context, resource, owner, attempt string) error {
			if looks.Add(1) == 1 {
				return errors.New("connection refused")
			}
			return g.store.Store.ReleaseAttempt(ctx, resource, owner, attempt)
		}
		g.ServeHTTP(deaf{httptest.NewRecorder()}, call{"POST", "/locks/r", `{"owner":"w1"}`, nil}.request())
		time.Sleep(time.Millisecond)
		start := time.Now()
		g.settle()
		if waited := time.Since(start); waited != 0 || g.holder("r") != "" || looks.Load() != 2 {
			t.Errorf("waited %v, holder %q, %d looks; want 0, nobody, 2", waited, g.holder("r"), looks.Load())
		}
	})
}
