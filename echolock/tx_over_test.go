package echolock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

// A request whose context has ended, while its client is still there, must not see an empty 200 for what was rolled back.
func TestARequestWhoseContextEndedIsAnswered(t *testing.T) {
	t.Parallel()
	wait := func(c echo.Context) error { <-c.Request().Context().Done(); return c.Request().Context().Err() }
	for name, test := range map[string]struct {
		handler echo.HandlerFunc
		status  int
	}{
		"an error":             {wait, http.StatusServiceUnavailable},
		"a late answer":        {func(c echo.Context) error { _ = wait(c); return created(c) }, http.StatusServiceUnavailable},
		"nothing, late":        {func(c echo.Context) error { _ = wait(c); return nil }, http.StatusServiceUnavailable},
		"an answer, an error":  {func(c echo.Context) error { _ = created(c); return wait(c) }, http.StatusInternalServerError},
		"a refusal":            {func(c echo.Context) error { _ = wait(c); return c.NoContent(http.StatusConflict) }, http.StatusConflict},
		"a refusal, an error":  {func(c echo.Context) error { _ = c.NoContent(http.StatusConflict); return wait(c) }, http.StatusConflict},
		"too large an answer":  {func(c echo.Context) error { _ = wait(c); return c.Blob(200, "x/y", make([]byte, 2<<20)) }, http.StatusInternalServerError},
		"an answer, a panic":   {func(c echo.Context) error { _ = created(c); _ = wait(c); panic("out of ink") }, http.StatusInternalServerError},
		"without one, a panic": {func(c echo.Context) error { _ = wait(c); panic("out of ink") }, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rig, db := newTxRig(t)
				rig.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}),
					middleware.ContextTimeout(time.Second))
				rig.pay(test.handler, inTx(db), notOver(t), func(config *echolock.Config) { config.FailOpen, config.OnAcquired = false, nil })
				w := rig.post("a1")
				wantCode(t, w, test.status)
				if w.Header().Get("Content-Type") == echo.MIMETextPlainCharsetUTF8 {
					t.Error("the headers of the answer that was taken back are still there")
				}
				db.wantEnds(t, 0, 1)
				rig.wantFree("a1")
			})
		})
	}
}

// The context ended, but the commit went well.
func TestACommittedAnswerGoesOutAfterTheContextsEnd(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	db.Transactor = detached{rig.store}
	db.committing = cancel
	rig.pay(created, inTx(db), notOver(t), func(config *echolock.Config) { config.FailOpen, config.OnAcquired = false, nil })
	wantCode(t, rig.serve(payRequest("a1").WithContext(ctx)), http.StatusCreated)
	db.wantEnds(t, 1, 0)
}

// detached commits whatever became of the context.
type detached struct{ locks.Transactor }

func (d detached) InTx(ctx context.Context, fn func(context.Context, locks.Tx) error) error {
	return d.Transactor.InTx(context.WithoutCancel(ctx), func(_ context.Context, tx locks.Tx) error { return fn(ctx, tx) })
}

func TestAClientThatGoesRollsBack(t *testing.T) {
	t.Parallel()
	ended := make(chan locks.Event, 10)
	rig, db := newTxRig(t, locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) { ended <- event })))
	entered, left := make(chan struct{}), make(chan error, 1)
	rig.pay(func(c echo.Context) error {
		close(entered)
		<-c.Request().Context().Done()
		left <- context.Cause(c.Request().Context())
		return created(c)
	}, inTx(db))
	server := rig.server()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = payTo(ctx, t, server, "a1", "") }()
	receive(t, entered, "the handler")
	cancel()
	if cause := receive(t, left, "the handler's end"); !errors.Is(cause, context.Canceled) {
		t.Errorf("cause = %v, want Canceled", cause)
	}
	for receive(t, ended, "the rollback").Kind != locks.EventRolledBack {
	}
	server.Close()
	db.wantEnds(t, 0, 1)
	rig.wantFree("a1")
}

// Under the race detector: a Timeout before us answers while the handler runs, and echo gives the echo.Context to the next
// request. Of the first one nothing is sent any more, and nothing is touched.
func TestATransactionThatATimeoutOutlivesTouchesNoEchoContext(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	var late sync.WaitGroup
	rig.POST("/pay", func(c echo.Context) error {
		ctx := c.Request().Context()
		err := created(c)
		close(ctx.Value(enteredKey{}).(chan struct{}))
		<-ctx.Done()
		return err
	}, timeout(&late), rig.guard(inTx(db), notOver(t), func(config *echolock.Config) {
		config.FailOpen, config.OnAcquired = false, nil
	}))
	rig.POST("/other", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := range 5 {
				wantCode(t, rig.post(strconv.Itoa(10*client+i)), http.StatusServiceUnavailable)
				for range 20 {
					wantCode(t, rig.serve(httptest.NewRequest(http.MethodPost, "/other", nil)), http.StatusNoContent)
				}
			}
		})
	}
	clients.Wait()
	late.Wait()
	db.wantEnds(t, 0, 40)
}

type enteredKey struct{}

// timeout is echo's Timeout without a clock: it answers as soon as the handler says that it runs.
func timeout(late *sync.WaitGroup) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			entered, writer := make(chan struct{}), c.Response().Writer
			ctx, cancel := context.WithCancel(context.WithValue(c.Request().Context(), enteredKey{}, entered))
			c.SetRequest(c.Request().WithContext(ctx))
			c.Response().Writer = httptest.NewRecorder() // which nobody looks at
			late.Go(func() { _ = next(c) })
			<-entered
			cancel()
			writer.WriteHeader(http.StatusServiceUnavailable)
			return nil
		}
	}
}
