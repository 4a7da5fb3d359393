package echolock_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
)

func TestAnAnswerAboveTheLimitRollsBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sizes  []int
		ignore bool
		first  int
		want   int
	}{
		"just fits":             {[]int{6, 4}, false, 200, http.StatusOK},
		"one byte more":         {[]int{6, 5}, false, 200, http.StatusInternalServerError},
		"at once":               {[]int{11}, false, 200, http.StatusInternalServerError},
		"and goes on":           {[]int{11, 1}, true, 200, http.StatusInternalServerError},
		"a refusal is no less":  {[]int{11}, true, 422, http.StatusInternalServerError},
		"fits again afterwards": {[]int{6, 5, 4}, true, 200, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, db := newTxRig(t)
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					if errors.Is(err, echolock.ErrResponseTooLarge) != (test.want != http.StatusOK) {
						t.Errorf("error = %v", err)
					}
					return err
				}
			})
			rig.pay(func(c echo.Context) error {
				c.Response().Header().Set("Receipt", "7")
				c.Response().WriteHeader(test.first)
				var failed error
				for _, size := range test.sizes {
					_, err := c.Response().Write([]byte(strings.Repeat("x", size)))
					if err != nil && !errors.Is(err, echolock.ErrResponseTooLarge) {
						t.Errorf("Write = %v", err)
					}
					if failed != nil && err == nil {
						t.Errorf("Write goes on after %v", failed)
					}
					failed = err
					if err != nil && !test.ignore {
						return err
					}
				}
				return nil
			}, inTx(db), func(config *echolock.Config) { config.ResponseLimit = 10 })
			w := rig.post("a1")
			if test.want == http.StatusOK {
				wantCode(t, w, test.want)
				db.wantEnds(t, 1, 0)
				return
			}
			wantProblem(t, w, test.want, echolock.TypeResponseTooLarge)
			if w.Header().Get("Receipt") != "" {
				t.Error("the answer's headers are still there")
			}
			db.wantEnds(t, 0, 1)
		})
	}
}

func TestTheDefaultLimitOfAnAnswer(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	size := int(echolock.DefaultResponseLimit)
	rig.pay(func(c echo.Context) error { return c.Blob(http.StatusOK, "x/y", make([]byte, size)) }, inTx(db))
	wantCode(t, rig.post("a1"), http.StatusOK)
	size++
	wantCode(t, rig.post("a1"), http.StatusInternalServerError)
	db.wantEnds(t, 1, 1)
}

// What a handler can do with a connection, and what would answer before the commit.
func TestTheConnectionUnderATransaction(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	rig.pay(func(c echo.Context) error {
		if _, _, err := c.Response().Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack = %v, want ErrNotSupported", err)
		}
		for name, w := range map[string]http.ResponseWriter{"echo's": c.Response(), "ours": c.Response().Writer} {
			controller := http.NewResponseController(w)
			if _, _, err := controller.Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("%s: Hijack = %v, want ErrNotSupported", name, err)
			}
			for call, err := range map[string]error{
				"SetWriteDeadline": controller.SetWriteDeadline(time.Now().Add(time.Hour)),
				"SetReadDeadline":  controller.SetReadDeadline(time.Now().Add(time.Hour)),
				"EnableFullDuplex": controller.EnableFullDuplex(),
			} {
				if err != nil {
					t.Errorf("%s: %s = %v", name, call, err)
				}
			}
		}
		if err := http.NewResponseController(c.Response().Writer).Flush(); err == nil || errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Flush = %v, want an error of our own", err)
		}
		c.Response().Flush() // and no panic
		c.SetCookie(&http.Cookie{Name: "a", Value: "1", Expires: time.Unix(0, 0)})
		c.SetCookie(&http.Cookie{Name: "b", Value: "2, 3"})
		return c.String(http.StatusCreated, strings.Repeat("x", 100_000))
	}, inTx(db))
	response, err := payTo(t.Context(), t, rig.server(), "a1", "")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || len(body) != 100_000 || response.StatusCode != http.StatusCreated {
		t.Errorf("answer = %d, %d bytes, %v", response.StatusCode, len(body), err)
	}
	if cookies := response.Header.Values("Set-Cookie"); len(cookies) != 2 || !strings.Contains(cookies[0], "Thu, 01 Jan 1970") {
		t.Errorf("cookies = %q", cookies)
	}
	db.wantEnds(t, 1, 0)
}

// What net/http would find out about an answer must be found out before the commit.
func TestAnAnswerThatCannotBeRollsBack(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	rig.pay(func(c echo.Context) error { return c.String(http.StatusNoContent, "a body") }, inTx(db))
	wantCode(t, rig.post("a1"), http.StatusInternalServerError)
	db.wantEnds(t, 0, 1)

	rig, db = newTxRig(t)
	rig.pay(func(c echo.Context) error { return c.NoContent(99) }, inTx(db))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		rig.post("a1")
	}()
	db.wantEnds(t, 0, 1)
}

func TestAHeadGetsTheHeadersOfItsAnswer(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	guard := rig.guard(inTx(db), func(config *echolock.Config) { config.GuardSafeMethods = true })
	rig.HEAD("/receipt", func(c echo.Context) error { return c.String(http.StatusOK, "paid") }, guard)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, rig.server().URL+"/receipt", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "a1")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength != 4 {
		t.Errorf("answer = %d, %d bytes; want 200, 4", response.StatusCode, response.ContentLength)
	}
	db.wantEnds(t, 1, 0)
}

// Requests that are not guarded have no transaction, and their answers go out as they come.
func TestWhatPassesHasNoTransaction(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	guard := rig.guard(inTx(db), func(config *echolock.Config) {
		config.MissingKey = echolock.MissingKeyPasses
		config.Skipper = func(c echo.Context) bool { return c.Request().Header.Get("Skip") != "" }
	})
	handler := func(c echo.Context) error {
		if tx := echolock.TxFrom(c); tx != nil {
			t.Errorf("TxFrom = %v", tx)
		}
		c.Response().Flush()
		return created(c)
	}
	rig.POST("/pay", handler, guard)
	rig.HEAD("/pay", handler, guard)
	skipped := payRequest("a1")
	skipped.Header.Set("Skip", "yes")
	for _, r := range []*http.Request{
		skipped, httptest.NewRequest(http.MethodHead, "/pay", nil), httptest.NewRequest(http.MethodPost, "/pay", nil),
	} {
		if w := rig.serve(r); !w.Flushed {
			t.Errorf("%s: not flushed", r.Method)
		}
	}
	db.wantEnds(t, 0, 0)
	if tx := echolock.TxFrom(echo.New().NewContext(skipped, httptest.NewRecorder())); tx != nil {
		t.Errorf("TxFrom = %v without the middleware", tx)
	}
}
