package echolock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
)

// Waits that are longer than the server's own timeouts: the answer arrives, and the handler has the WriteTimeout anew.
func TestAWaitLongerThanTheServersTimeouts(t *testing.T) {
	const short = 500 * time.Millisecond
	var tests sync.WaitGroup // they only wait, so all at once
	for name, change := range map[string]func(server *httptest.Server){
		"WriteTimeout":         func(server *httptest.Server) { server.Config.WriteTimeout = short },
		"ReadTimeout":          func(server *httptest.Server) { server.Config.ReadTimeout = short },
		"both":                 func(server *httptest.Server) { server.Config.ReadTimeout, server.Config.WriteTimeout = short, short },
		"WriteTimeout, HTTP/2": func(server *httptest.Server) { server.Config.WriteTimeout = short; server.EnableHTTP2 = true },
		"ReadTimeout, HTTP/2":  func(server *httptest.Server) { server.Config.ReadTimeout = short; server.EnableHTTP2 = true },
	} {
		for how, limit := range map[string]time.Duration{"refused": 3 * short, "granted": time.Minute} {
			tests.Go(func() {
				t.Run(name+", "+how, func(t *testing.T) {
					waitLongerThan(t, change, short, limit)
				})
			})
		}
	}
	tests.Wait()
}

func waitLongerThan(t *testing.T, change func(server *httptest.Server), short, limit time.Duration) {
	rig := newGuardRig(t, locks.WithBackoff(10*time.Millisecond, 50*time.Millisecond))
	rig.pay(func(c echo.Context) error {
		if _, err := io.ReadAll(c.Request().Body); err != nil {
			return err
		}
		if server := c.Request().Context().Value(http.ServerContextKey).(*http.Server); server.WriteTimeout == 0 {
			select { // ReadTimeout is for what is read, and the body was
			case <-time.After(2 * short):
			case <-c.Request().Context().Done():
				t.Error("the handler's context ended")
			}
		}
		return created(c)
	}, waiting(limit))
	lease := rig.hold("a1")
	server := httptest.NewUnstartedServer(rig.Echo)
	change(server)
	if server.EnableHTTP2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	defer server.Close()
	want := http.StatusLocked
	if limit > 3*short {
		want = http.StatusCreated
		time.AfterFunc(3*short, func() { _ = lease.Release(context.Background()) })
	}
	response, err := payTo(t.Context(), t, server, "a1", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); response.StatusCode != want || err != nil {
		t.Errorf("answer = %d %s %v, want %d", response.StatusCode, body, err, want)
	}
}

// deadlineWriter notes how far ahead the write deadlines are.
type deadlineWriter struct {
	http.ResponseWriter
	ahead []time.Duration
}

func (w *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	w.ahead = append(w.ahead, time.Until(deadline))
	return nil
}

func TestTheWriteTimeoutCountsFromTheEndOfTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		release time.Duration // the key's, 0 for never
		status  int
	}{"granted": {time.Second, http.StatusCreated}, "refused": {0, http.StatusLocked}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				w := &deadlineWriter{ResponseWriter: httptest.NewRecorder()}
				rig.pay(func(c echo.Context) error {
					want := []time.Duration{time.Minute + 7*time.Second, 7 * time.Second}
					if !slices.Equal(w.ahead, want) {
						t.Errorf("deadlines ahead when the handler begins = %v, want %v", w.ahead, want)
					}
					return created(c)
				}, waiting(time.Minute))
				lease := rig.hold("a1")
				if test.release > 0 {
					time.AfterFunc(test.release, func() { _ = lease.Release(context.Background()) })
				}
				ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: 7 * time.Second})
				rig.ServeHTTP(w, payRequest("a1").WithContext(ctx))
				wantCode(t, w.ResponseWriter.(*httptest.ResponseRecorder), test.status)
				if len(w.ahead) != 2 || w.ahead[1] != 7*time.Second {
					t.Errorf("deadlines ahead = %v", w.ahead)
				}
			})
		})
	}
}

// bareWriter hides what a ResponseController needs, as some middleware's writers do.
type bareWriter struct{ http.ResponseWriter }

func TestAWaitIsShorterThanAWriteTimeoutThatCannotBeMoved(t *testing.T) {
	rig := newGuardRig(t)
	rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Writer = bareWriter{c.Response().Writer}
			return next(c)
		}
	})
	rig.pay(mustNotRun(t), waiting(time.Minute))
	rig.hold("a1")
	server := rig.server(func(server *httptest.Server) { server.Config.WriteTimeout = time.Second })
	response, err := payTo(t.Context(), t, server, "a1", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusLocked {
		t.Errorf("answer = %d, want 423", response.StatusCode)
	}
}
