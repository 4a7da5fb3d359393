package echolock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestAdminRoutes(t *testing.T) {
	for _, prefix := range []string{"/admin/locks", "/a/:b/c", ""} {
		for _, with := range [][]echo.MiddlewareFunc{nil, {pass}} {
			t.Run(fmt.Sprintf("%q middleware=%v", prefix, with != nil), func(t *testing.T) {
				e := echo.New()
				store := memstore.New()
				var audited []lockhttp.ForceRelease
				err := echolock.MountAdmin(e.Group(prefix, with...), echolock.AdminConfig{
					Store: store,
					Authorize: func(c echo.Context, _ lockhttp.Action, _ string) error {
						if c.Request().Header.Get("X-User") != "ada" {
							return echo.ErrUnauthorized
						}
						return nil
					},
					Challenge: "Basic",
					Audit:     func(_ context.Context, release lockhttp.ForceRelease) { audited = append(audited, release) },
				})
				if err != nil {
					t.Fatal(err)
				}
				base := strings.ReplaceAll(prefix, ":b", "x")
				list := base
				if list == "" {
					list = "/"
				}
				for _, resource := range []string{"job", "a/b", "http:4:POST,1:/,1:k"} {
					if _, err := store.Acquire(t.Context(), locks.Request{Resource: resource, Owner: "w1", Attempt: "1", TTL: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				w := send(e, "GET", list, "")
				wantStatus(t, w, 401, lockhttp.TypeUnauthenticated)
				if got := w.Header().Get("WWW-Authenticate"); got != "Basic" {
					t.Errorf("WWW-Authenticate = %q, want Basic", got)
				}
				w = send(e, "GET", list+"?prefix=http:", "", "X-User: ada")
				if w.Code != 200 || !strings.Contains(w.Body.String(), `"resource":"http:4:POST,1:/,1:k","owner":"w1"`) || strings.Contains(w.Body.String(), `"a/b"`) {
					t.Errorf("list = %d %s", w.Code, w.Body)
				}
				wantStatus(t, send(e, "HEAD", list, "", "X-User: ada"), 200, "")
				for segment, resource := range map[string]string{"job": "job", "a%2Fb": "a/b", "http:4:POST,1:%2F,1:k": "http:4:POST,1:/,1:k"} {
					path := base + "/" + segment
					lock, err := store.Get(t.Context(), resource)
					if err != nil {
						t.Fatal(err)
					}
					w := send(e, "GET", path, "", "X-User: ada")
					if w.Code != 200 || !strings.Contains(w.Body.String(), `"owner":"w1"`) {
						t.Errorf("GET %s = %d %s", path, w.Code, w.Body)
					}
					wantStatus(t, send(e, "HEAD", path, "", "X-User: ada"), 200, "")
					wantStatus(t, send(e, "DELETE", path, "", "X-User: ada"), 428, lockhttp.TypePreconditionRequired)
					wantStatus(t, send(e, "DELETE", path+"?reason=x", "", "X-User: ada", `If-Match: "999"`), 412, lockhttp.TypePreconditionFailed)
					wantStatus(t, send(e, "DELETE", path+"?reason=x", "", "X-User: ada", fmt.Sprintf(`If-Match: "%d"`, lock.Token)), 200, "")
					wantStatus(t, send(e, "GET", path, "", "X-User: ada"), 404, lockhttp.TypeNotHeld)
				}
				if len(audited) != 6 {
					t.Errorf("%d audits, want 6", len(audited))
				}
				// echo hands the last parameter all that follows: that is no resource.
				for _, path := range []string{"/a/b", "/a%2Fb/c", "/a/b%2Fc", "/job/"} {
					if w := send(e, "GET", base+path, "", "X-User: ada"); w.Code != 404 || strings.Contains(w.Body.String(), lockhttp.TypePrefix) {
						t.Errorf("GET %s = %d %s, want echo's 404", base+path, w.Code, w.Body)
					}
				}
			})
		}
	}
}
