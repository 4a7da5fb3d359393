package echolock_test

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks/lockhttp"
)

func TestAHijackedConnectionGetsNoAnswerWhenTheLeaseWasLost(t *testing.T) {
	rig := newGuardRig(t)
	rig.HTTPErrorHandler = func(err error, _ echo.Context) { t.Errorf("an answer for %v", err) }
	rig.pay(func(c echo.Context) error {
		conn, buffer, err := c.Response().Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		rig.store.Expire(payResource("a1"))
		_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbye")
		return buffer.Flush() // nil, as a WebSocket's handler returns in the end
	})
	server := rig.server()
	response, err := payTo(t.Context(), t, server, "a1", "")
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(response.Body); string(body) != "bye" {
		t.Errorf("body = %q", body)
	}
	server.Close()
}

// Clients may ask for an upgrade, some do it always; without one they are answered.
func TestAnUpgradeThatDidNotHappenIsAnsweredWhenTheLeaseWasLost(t *testing.T) {
	for _, protocol := range []string{"h2c", "websocket"} {
		rig := newGuardRig(t)
		rig.pay(func(c echo.Context) error {
			if _, _, err := c.Response().Hijack(); !errors.Is(err, http.ErrNotSupported) { // by the recorder
				t.Errorf("Hijack = %v", err)
			}
			rig.store.Expire(payResource("a1"))
			return nil
		})
		r := payRequest("a1")
		r.Header.Set("Upgrade", protocol)
		wantProblem(t, rig.serve(r), http.StatusServiceUnavailable, lockhttp.TypeLost)
	}
}

func TestTheHandlersWriterFlushesAndUnwraps(t *testing.T) {
	rig := newGuardRig(t)
	var outside http.ResponseWriter
	rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outside = c.Response().Writer
			err := next(c)
			if c.Response().Writer != outside {
				t.Error("the guard's writer stays behind")
			}
			return err
		}
	})
	rig.pay(func(c echo.Context) error {
		inside := c.Response().Writer
		if inner, ok := inside.(interface{ Unwrap() http.ResponseWriter }); !ok || inner.Unwrap() != outside {
			t.Error("Unwrap does not give the host's writer")
		}
		c.Response().Flush()
		inside.(http.Flusher).Flush()
		return nil
	})
	if w := rig.post("a1"); !w.Flushed {
		t.Error("not flushed")
	}

	rig = newGuardRig(t)
	rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Writer = bareWriter{c.Response().Writer}
			return next(c)
		}
	})
	rig.pay(func(c echo.Context) error {
		if err := http.NewResponseController(c.Response().Writer).Flush(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush = %v, want ErrNotSupported", err)
		}
		return created(c)
	})
	wantCode(t, rig.post("a1"), http.StatusCreated)
}
