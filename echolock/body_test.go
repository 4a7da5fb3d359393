package echolock_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// multipartBody has the field key, a file of the same name, and a file that is larger than what net/http keeps in memory.
func multipartBody(t *testing.T, fields ...string) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	writer := multipart.NewWriter(body)
	file, _ := writer.CreateFormFile("key", "key.txt")
	_, _ = io.WriteString(file, "of the file")
	for _, field := range fields {
		_ = writer.WriteField("key", field)
	}
	file, _ = writer.CreateFormFile("scan", "scan.pdf")
	_, _ = file.Write(make([]byte, 100<<10))
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return body, writer.FormDataContentType()
}

func TestAFormKeyLeavesTheBodyToTheHandler(t *testing.T) {
	parts, contentType := multipartBody(t, "a1")
	for name, test := range map[string]struct{ contentType, body string }{
		"urlencoded": {"application/x-www-form-urlencoded", "key=a1&amount=100"},
		"multipart":  {contentType, parts.String()},
	} {
		for how, read := range map[string]func(c echo.Context) string{
			"raw": func(c echo.Context) string {
				body, err := io.ReadAll(c.Request().Body)
				if err != nil || string(body) != test.body {
					t.Errorf("%s: body = %d bytes, %v; want %d", name, len(body), err, len(test.body))
				}
				return "a1"
			},
			"FormValue": func(c echo.Context) string { return c.FormValue("key") },
			"FormParams": func(c echo.Context) string {
				values, _ := c.FormParams()
				return values.Get("key")
			},
			"Bind": func(c echo.Context) string {
				var form struct {
					Key string `form:"key"`
				}
				if err := c.Bind(&form); err != nil {
					t.Error(err)
				}
				return form.Key
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				rig := newGuardRig(t)
				rig.pay(func(c echo.Context) error {
					return c.String(http.StatusOK, read(c)+" "+echolock.LeaseFrom(c).Resource())
				}, func(config *echolock.Config) { config.KeyLookup = "form:key" })
				r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(test.body))
				r.Header.Set("Content-Type", test.contentType)
				if w := rig.serve(r); w.Body.String() != "a1 "+payResource("a1") {
					t.Errorf("answer = %d %s", w.Code, w.Body)
				}
			})
		}
	}
}

func TestAFormThatTheHandlerParsedIsThereForOuterMiddleware(t *testing.T) {
	rig := newGuardRig(t)
	rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			if amount := c.FormValue("amount"); amount != "100" {
				t.Errorf("amount = %q", amount)
			}
			return err
		}
	})
	rig.pay(func(c echo.Context) error { return c.String(http.StatusOK, c.FormValue("amount")) })
	wantCode(t, rig.serve(ask("/pay", "amount=100", "Idempotency-Key: a1")), http.StatusOK)
}

func TestAFormThatWasParsedBeforeHasItsKey(t *testing.T) {
	parts, contentType := multipartBody(t, "a1")
	for name, test := range map[string]struct{ contentType, body string }{
		"urlencoded": {"application/x-www-form-urlencoded", "key=a1"},
		"multipart":  {contentType, parts.String()},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					_, _ = c.FormParams()
					return next(c)
				}
			})
			rig.pay(func(c echo.Context) error {
				return c.String(http.StatusOK, echolock.LeaseFrom(c).Resource()+c.FormValue("key"))
			}, func(config *echolock.Config) { config.KeyLookup = "form:key" })
			r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(test.body))
			r.Header.Set("Content-Type", test.contentType)
			if w := rig.serve(r); w.Body.String() != payResource("a1")+"a1" {
				t.Errorf("answer = %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestAMultipartKeyMustBeOneField(t *testing.T) {
	for name, fields := range map[string][]string{"none": nil, "two": {"a", "b"}, "empty": {""}} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.pay(mustNotRun(t), func(config *echolock.Config) { config.KeyLookup = "form:key" })
			body, contentType := multipartBody(t, fields...)
			r := httptest.NewRequest(http.MethodPost, "/pay", body)
			r.Header.Set("Content-Type", contentType)
			wantProblem(t, rig.serve(r), http.StatusBadRequest, lockhttp.TypeMalformed)
		})
	}
	t.Run("broken", func(t *testing.T) {
		rig := newGuardRig(t)
		rig.pay(mustNotRun(t), func(config *echolock.Config) { config.KeyLookup = "form:key" })
		body, contentType := multipartBody(t, "a1")
		r := httptest.NewRequest(http.MethodPost, "/pay", io.LimitReader(body, 200))
		r.Header.Set("Content-Type", contentType)
		wantProblem(t, rig.serve(r), http.StatusBadRequest, lockhttp.TypeMalformed)
	})
}

// The server deletes what it finds in its own request, not in a copy.
func TestFilesOfAMultipartFormAreDeletedAfterTheRequest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		if err := c.Request().ParseMultipartForm(1); err != nil {
			return err
		}
		if files, _ := os.ReadDir(os.TempDir()); len(files) == 0 {
			t.Error("no temporary file: the test tests nothing")
		}
		return created(c)
	})
	server := rig.server()
	body, contentType := multipartBody(t)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/pay", body)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", "a1")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.Close() // waits for the request's end
	if files, _ := os.ReadDir(os.TempDir()); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestABodyAboveTheLimitIs413AndOneAtTheLimitIsWhole(t *testing.T) {
	form := func(n int) string { return "key=a1&x=" + strings.Repeat("x", n-len("key=a1&x=")) }
	for name, change := range map[string]func(config *echolock.Config){
		"form":     func(config *echolock.Config) { config.KeyLookup = "form:key" },
		"waiting":  func(config *echolock.Config) { config.WaitTimeout = time.Second },
		"PeekBody": func(config *echolock.Config) { config.KeyFunc = bodyKey(1000) },
	} {
		for how, known := range map[string]bool{"length known": true, "chunked": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				for size, status := range map[int]int{1000: http.StatusOK, 1001: http.StatusRequestEntityTooLarge} {
					rig := newGuardRig(t)
					rig.pay(func(c echo.Context) error {
						body, err := io.ReadAll(c.Request().Body)
						if string(body) != form(size) || err != nil {
							t.Errorf("body = %q, %v", body, err)
						}
						return c.NoContent(http.StatusOK)
					}, change, func(config *echolock.Config) { config.BodyLimit = 1000 })
					r := ask("/pay", form(size), "Idempotency-Key: a1")
					if !known {
						r.ContentLength = -1
					}
					w := rig.serve(r)
					if w.Code != status {
						t.Errorf("%d bytes: answer = %d %s, want %d", size, w.Code, w.Body, status)
					}
					if status != http.StatusOK {
						wantProblem(t, w, status, lockhttp.TypeTooLarge)
					}
				}
			})
		}
	}
}

// bodyKey is a KeyFunc that takes the body's first two bytes behind key=.
func bodyKey(limit int64) func(c echo.Context) (string, error) {
	return func(c echo.Context) (string, error) {
		body, err := echolock.PeekBody(c, limit)
		if err != nil {
			return "", err
		}
		again, err := echolock.PeekBody(c, limit)
		if err != nil || !bytes.Equal(body, again) {
			return "", fmt.Errorf("the second look gave %q, %w", again, err)
		}
		return string(body[4:6]), nil
	}
}

func TestABodyThatWasPeekedMayBeTooLargeForTheNext(t *testing.T) {
	for size, status := range map[int]int{10: http.StatusCreated, 11: http.StatusRequestEntityTooLarge} {
		rig := newGuardRig(t)
		rig.pay(created, func(config *echolock.Config) {
			config.KeyFunc = func(c echo.Context) (string, error) {
				body, err := echolock.PeekBody(c, 1000)
				if len(body) != size || err != nil {
					t.Errorf("body = %d bytes, %v; want %d", len(body), err, size)
				}
				return "a1", nil
			}
			config.WaitTimeout, config.BodyLimit = time.Second, 10
		})
		r := ask("/pay", strings.Repeat("x", size))
		r.ContentLength = -1
		wantCode(t, rig.serve(r), status)
	}
}

func TestLimitsOfOthersAre413Too(t *testing.T) {
	for name, limit := range map[string]echo.MiddlewareFunc{
		"echo's BodyLimit": middleware.BodyLimit("10B"),
		"MaxBytesReader": func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				c.Request().Body = http.MaxBytesReader(c.Response(), c.Request().Body, 10)
				return next(c)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			rig.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					err := next(c)
					var answer *echo.HTTPError
					if !errors.As(err, &answer) || answer.Code != http.StatusRequestEntityTooLarge {
						t.Errorf("error = %v, want 413", err)
					}
					return err
				}
			})
			rig.POST("/pay", mustNotRun(t), limit, rig.guard(func(config *echolock.Config) { config.KeyLookup = "form:key" }))
			r := ask("/pay", "key=a1&more=of+it")
			r.ContentLength = -1
			wantCode(t, rig.serve(r), http.StatusRequestEntityTooLarge)
		})
	}
}

func TestABodyThatBreaksOffIs400(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(mustNotRun(t), func(config *echolock.Config) { config.KeyLookup = "form:key" })
	r := ask("/pay", "key=a1")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("key="), brokenReader{}))
	wantProblem(t, rig.serve(r), http.StatusBadRequest, lockhttp.TypeMalformed)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestWithoutAWaitOrAFormTheBodyIsNotRead(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(func(c echo.Context) error {
		n, err := io.Copy(io.Discard, c.Request().Body)
		if n != 2<<20 || err != nil {
			t.Errorf("body = %d bytes, %v", n, err)
		}
		return created(c)
	})
	r := ask("/pay", strings.Repeat("x", 2<<20), "Idempotency-Key: a1")
	wantCode(t, rig.serve(r), http.StatusCreated)
}
