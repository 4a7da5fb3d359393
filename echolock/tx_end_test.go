package echolock_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

var errDeclined = errors.New("card declined")

// The transaction is committed when the handler succeeds, and the client hears of an answer only if it stands.
func TestATransactionEndsAsTheHandlerDoes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "receipt.txt")
	if err := os.WriteFile(file, []byte("paid"), 0o600); err != nil {
		t.Fatal(err)
	}
	refusal := func(c echo.Context) error { return c.String(http.StatusUnprocessableEntity, "declined") }
	for name, test := range map[string]struct {
		handler   echo.HandlerFunc
		committed bool
		status    int
		body      string
		err       error
	}{
		"String":    {created, true, http.StatusCreated, "done", nil},
		"NoContent": {func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, true, http.StatusNoContent, "", nil},
		"nothing":   {func(echo.Context) error { return nil }, true, http.StatusOK, "", nil},
		"Redirect":  {func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/receipt") }, true, http.StatusSeeOther, "", nil},
		"File":      {func(c echo.Context) error { return c.File(file) }, true, http.StatusOK, "paid", nil},
		"Stream": {func(c echo.Context) error {
			return c.Stream(http.StatusOK, "text/plain", strings.NewReader("paid"))
		}, true, http.StatusOK, "paid", nil},
		"in parts": {func(c echo.Context) error {
			for _, part := range []string{"pa", "id"} {
				if _, err := c.Response().Write([]byte(part)); err != nil {
					return err
				}
			}
			return nil
		}, true, http.StatusOK, "paid", nil},
		"the last below": {func(c echo.Context) error { return c.String(399, "odd") }, true, 399, "odd", nil},
		"the first that is refused": {func(c echo.Context) error {
			return c.String(http.StatusBadRequest, "bad")
		}, false, http.StatusBadRequest, "bad", nil},
		"refused":                    {refusal, false, http.StatusUnprocessableEntity, "declined", nil},
		"refused, an error":          {func(c echo.Context) error { _ = refusal(c); return errDeclined }, false, http.StatusUnprocessableEntity, "declined", errDeclined},
		"net/http":                   {echo.WrapHandler(http.NotFoundHandler()), false, http.StatusNotFound, "404 page not found\n", nil},
		"c.Error":                    {func(c echo.Context) error { c.Error(echo.ErrTeapot); return nil }, false, http.StatusTeapot, "", nil},
		"error":                      {func(echo.Context) error { return errDeclined }, false, http.StatusInternalServerError, "", errDeclined},
		"HTTPError":                  {func(echo.Context) error { return echo.ErrTeapot }, false, http.StatusTeapot, "", echo.ErrTeapot},
		"answer, an error":           {func(c echo.Context) error { _ = created(c); return errDeclined }, false, http.StatusInternalServerError, "", errDeclined},
		"its own error of the guard": {func(echo.Context) error { return locks.ErrHeld }, false, http.StatusInternalServerError, "", locks.ErrHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, db := newTxRig(t)
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					before, writer := c.Request(), c.Response().Writer
					err := next(c)
					if c.Request().Header.Get("Meanwhile") != "" {
						return err
					}
					if err != test.err { //nolint:errorlint // the very same is wanted
						t.Errorf("error = %v, want the handler's own %v", err, test.err)
					}
					if c.Request() != before || c.Response().Writer != writer {
						t.Error("the request or the writer stays the handler's")
					}
					return err
				}
			})
			rig.pay(func(c echo.Context) error {
				meanwhile := payRequest("a1")
				meanwhile.Header.Set("Meanwhile", "yes")
				wantProblem(t, rig.serve(meanwhile), http.StatusLocked, lockhttp.TypeHeld)
				tx, _ := echolock.TxFrom(c).(*databaseTx)
				if tx == nil || echolock.TxFromContext(c.Request().Context()) != echolock.TxFrom(c) {
					t.Fatalf("TxFrom = %v", echolock.TxFrom(c))
				}
				if lease := echolock.LeaseFrom(c); lease == nil || lease != c.Get("lease") || lease.Err() != nil {
					t.Errorf("lease = %v", lease)
				}
				tx.insert("paid")
				return test.handler(c)
			}, inTx(db))

			w := rig.post("a1")
			wantCode(t, w, test.status)
			if test.body != "" && w.Body.String() != test.body {
				t.Errorf("body = %q, want %q", w.Body, test.body)
			}
			if test.committed {
				db.wantEnds(t, 1, 1) // and the one meanwhile
			} else {
				db.wantEnds(t, 0, 2)
			}
			if test.committed != (len(db.words) == 1) {
				t.Errorf("written: %q", db.words)
			}
			rig.wantFree("a1")
		})
	}
}

// Recover after us (inside) makes an error of a panic that came before an answer; one that came after an answer looks to
// everybody outside like a success, so that the docs want it before us.
func TestAPanicRollsBackWithRecoverBeforeAndAfterAndWithout(t *testing.T) {
	t.Parallel()
	recoverer := middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
	for name, test := range map[string]struct {
		inside, outside, answers bool
	}{
		"before":                  {outside: true},
		"before, with an answer":  {outside: true, answers: true},
		"after":                   {inside: true},
		"without":                 {},
		"without, with an answer": {answers: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, db := newTxRig(t)
			if test.outside {
				rig.Use(recoverer)
			}
			chain := []echo.MiddlewareFunc{rig.guard(inTx(db))}
			if test.inside {
				chain = append(chain, recoverer)
			}
			rig.POST("/pay", func(c echo.Context) error {
				echolock.TxFrom(c).(*databaseTx).insert("paid")
				if test.answers {
					_ = created(c)
				}
				panic("out of ink")
			}, chain...)
			func() {
				defer func() {
					if p := recover(); (p == nil) == (!test.inside && !test.outside) || (p != nil && p != "out of ink") {
						t.Errorf("panic = %v", p)
					}
				}()
				w := rig.post("a1")
				wantCode(t, w, http.StatusInternalServerError)
				if media := w.Header().Get("Content-Type"); media != echo.MIMEApplicationJSON {
					t.Errorf("Content-Type = %q, want that of the error", media)
				}
			}()
			db.wantEnds(t, 0, 1)
			rig.wantFree("a1")
		})
	}
}
