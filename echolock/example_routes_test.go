package echolock_test

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Each tenant has resources of its own: the tenant in the path must be the one that the request's credentials are for.
func ExampleMount() {
	e := echo.New()
	api, err := echolock.Mount(e.Group("/t/:tenant/locks"), echolock.RoutesConfig{
		Store: memstore.New(), // in production a bunstore
		Authorize: func(c echo.Context, _ lockhttp.Action, resource string) error {
			user, _, ok := c.Request().BasicAuth()
			if !ok {
				return echo.ErrUnauthorized
			}
			if user != c.Param("tenant") || !strings.HasPrefix(resource, user+":") {
				return echo.ErrForbidden
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, target := range []string{"/t/acme/locks/acme:close-2026-05", "/t/other/locks/other:close-2026-05"} {
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(`{"owner":"w1","ttl_seconds":30}`))
		r.Header.Set("Content-Type", "application/json")
		r.SetBasicAuth("acme", "…")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(target, w.Code)
	}
	// At the end, after e.Shutdown:
	fmt.Println(api.Close(context.Background()))
	// Output:
	// /t/acme/locks/acme:close-2026-05 200
	// /t/other/locks/other:close-2026-05 403
	// <nil>
}

// Operators list leases and end one that hangs.
func ExampleMountAdmin() {
	e := echo.New()
	err := echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{
		Store: memstore.New(),
		Authorize: func(c echo.Context, _ lockhttp.Action, _ string) error {
			_, password, _ := c.Request().BasicAuth()
			if subtle.ConstantTimeCompare([]byte(password), []byte("correct horse")) == 0 {
				return echo.ErrUnauthorized
			}
			return nil
		},
		Challenge: "Basic",
		Audit: func(_ context.Context, release lockhttp.ForceRelease) {
			user, _, _ := release.Request.BasicAuth()
			fmt.Println(user, "ended", release.Resource, release.Reason, release.Err)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest(http.MethodGet, "/admin/locks?prefix=job:", nil)
	r.SetBasicAuth("ada", "correct horse")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
	// Output:
	// 200 {"locks":[],"next_cursor":null}
}
