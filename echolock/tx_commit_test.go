package echolock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

var errConstraint = errors.New("violates a deferred constraint")

// However the commit fails, no success was sent, and the answer's own headers are gone with it.
func TestACommitThatFailsIsNoSuccess(t *testing.T) {
	t.Parallel()
	held := locks.Held("another", nil)
	for name, test := range map[string]struct {
		commit error
		ends   locks.Outcome
		status int
		urn    string
		is     error
	}{
		"serialization":                        {fmt.Errorf("commit: %w", locks.ErrSerialization), locks.RolledBack, 503, lockhttp.TypeBusy, locks.ErrSerialization},
		"busy":                                 {locks.ErrBusy, locks.RolledBack, 503, lockhttp.TypeBusy, locks.ErrBusy},
		"constraint":                           {errConstraint, locks.RolledBack, 503, lockhttp.TypeUnavailable, errConstraint},
		"no answer":                            {errStore, locks.Unknown, 503, echolock.TypeOutcomeUnknown, errStore},
		"no answer, and retryable by its kind": {locks.ErrBusy, locks.Unknown, 503, echolock.TypeOutcomeUnknown, locks.ErrBusy},
		"lost":                                 {&locks.LostError{Reason: locks.ErrNotHeld}, locks.RolledBack, 503, lockhttp.TypeLost, locks.ErrLost},
		"held":                                 {held, locks.RolledBack, 423, lockhttp.TypeHeld, locks.ErrHeld},
	} {
		for kind, handler := range map[string]echo.HandlerFunc{
			"an answer": created, "nothing": func(echo.Context) error { return nil },
		} {
			t.Run(name+" after "+kind, func(t *testing.T) {
				t.Parallel()
				rig, db := newTxRig(t)
				db.commit, db.ends = test.commit, test.ends
				var returned []*echo.HTTPError
				rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c echo.Context) error {
						err := next(c)
						answer, bare := err.(*echo.HTTPError) //nolint:errorlint // bare is wanted
						if !bare || !errors.Is(err, test.is) || c.Response().Committed || c.Response().Size != 0 {
							t.Errorf("error = %#v, committed %v", err, c.Response().Committed)
						}
						returned = append(returned, answer)
						return err
					}
				})
				rig.pay(func(c echo.Context) error {
					echolock.TxFrom(c).(*databaseTx).insert("paid")
					c.SetCookie(&http.Cookie{Name: "receipt", Value: "7"})
					return handler(c)
				}, inTx(db), func(config *echolock.Config) { config.ExposeHeaders = true })
				for range 2 {
					w := rig.post("a1")
					got := wantProblem(t, w, test.status, test.urn)
					if got.RetryAfter != 1 || w.Header().Get("Retry-After") != "1" {
						t.Errorf("Retry-After = %q, %+v; want 1", w.Header().Get("Retry-After"), got)
					}
					if w.Header().Get("Set-Cookie") != "" || w.Header().Get(echolock.HeaderKey) != "a1" {
						t.Errorf("headers = %v", w.Header())
					}
				}
				if returned[0] == returned[1] {
					t.Error("two requests got the same error")
				}
				db.wantEnds(t, 0, 2)
				rig.wantFree("a1")
			})
		}
	}
}

func TestNothingIsSentBeforeTheCommit(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	w := httptest.NewRecorder()
	sent := &sentWriter{ResponseWriter: w}
	db.committing = func() {
		if sent.calls != 0 {
			t.Errorf("%d writes before the commit", sent.calls)
		}
	}
	rig.pay(func(c echo.Context) error {
		c.Response().WriteHeader(http.StatusEarlyHints)
		c.Response().Committed = false
		_ = c.String(http.StatusCreated, "paid")
		c.Response().Flush()
		return nil
	}, inTx(db))
	rig.ServeHTTP(sent, payRequest("a1"))
	if sent.calls == 0 || w.Code != http.StatusCreated || w.Body.String() != "paid" || w.Flushed {
		t.Errorf("answer = %d %q, flushed %v", w.Code, w.Body, w.Flushed)
	}
	db.wantEnds(t, 1, 0)
}

// sentWriter counts what goes to the client.
type sentWriter struct {
	http.ResponseWriter
	calls int
}

func (w *sentWriter) WriteHeader(status int)      { w.calls++; w.ResponseWriter.WriteHeader(status) }
func (w *sentWriter) Write(b []byte) (int, error) { w.calls++; return w.ResponseWriter.Write(b) }
func (w *sentWriter) Unwrap() http.ResponseWriter { w.calls++; return w.ResponseWriter }

func TestTheHostMayAnswerForTheCommit(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	db.commit = errConstraint
	rig.pay(created, inTx(db), func(config *echolock.Config) {
		config.ErrorHandler = func(c echo.Context, err error) error {
			if errors.Is(err, errConstraint) {
				return c.String(http.StatusConflict, "paid already")
			}
			return err
		}
	})
	if w := rig.post("a1"); w.Code != http.StatusConflict || w.Body.String() != "paid already" {
		t.Errorf("answer = %d %q", w.Code, w.Body)
	}
}

func TestWithoutADatabaseTheHandlerDoesNotRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin error
		urn   string
	}{
		"down": {errStore, lockhttp.TypeUnavailable},
		"busy": {fmt.Errorf("begin: %w", locks.ErrBusy), lockhttp.TypeBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, db := newTxRig(t)
			db.begin = test.begin
			rig.pay(mustNotRun(t), inTx(db))
			if w := rig.post("a1"); w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			} else {
				wantProblem(t, w, http.StatusServiceUnavailable, test.urn)
			}
		})
	}
}

// A store may fail after its commit, in giving the connection back for one: the outcome that it told counts.
func TestAnErrorAfterTheCommitIsNoFailure(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	db.commit, db.ends = errStore, locks.Committed
	rig.pay(created, inTx(db))
	wantCode(t, rig.post("a1"), http.StatusCreated)
	db.wantEnds(t, 1, 0)
}
