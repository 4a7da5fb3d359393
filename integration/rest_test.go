package integration_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// The table of the REST API from end to end: through echo, the store and PostgreSQL.
func TestRESTOnPostgres(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		e := echo.New()
		api, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Anyone: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Close(t.Context()) })
		allow := func(echo.Context, lockhttp.Action, string) error { return nil }
		if err := echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{Store: store, Authorize: allow}); err != nil {
			t.Fatal(err)
		}
		send := func(method, target, body string, header ...string) (int, map[string]any) {
			r := httptest.NewRequest(method, target, strings.NewReader(body))
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			var answer map[string]any
			if w.Body.Len() > 0 && method != http.MethodHead {
				if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
					t.Errorf("%s %s: %v in %s", method, target, err, w.Body)
				}
			}
			return w.Code, answer
		}
		expire := func() { exec(t, db, "UPDATE distributed_locks SET expires_at = clock_timestamp()") }
		const held, problem = `{"owner":"w1","ttl_seconds":30}`, "urn:rowlease:problem:"
		for _, step := range []struct {
			method, target, body string
			status               int
			want                 string // a problem's type, or a member that is there
			before               func()
		}{
			{"GET", "/locks/a%2Fb", "", 404, problem + "not-held", nil},
			{"POST", "/locks/a%2Fb", held, 200, "lock", nil},
			{"POST", "/locks/a%2Fb", `{"owner":"w2","ttl_seconds":30}`, 200, "holder", nil},
			{"GET", "/locks/a%2Fb", "", 200, "lock", nil},
			{"HEAD", "/locks/a%2Fb", "", 200, "", nil},
			{"GET", "/locks/a%252Fb", "", 404, problem + "not-held", nil},
			{"POST", "/locks/a%2Fb/renew", `{"owner":"w1","ttl_seconds":60,"token":1}`, 200, "lock", nil},
			{"POST", "/locks/a%2Fb/renew", `{"owner":"w2","ttl_seconds":60}`, 409, problem + "not-owner", nil},
			{"POST", "/locks/a%2Fb", held, 200, "lock", nil},
			{"POST", "/locks/a%2Fb/renew", `{"owner":"w1","ttl_seconds":60,"token":1}`, 409, problem + "superseded", nil},
			{"DELETE", "/locks/a%2Fb?owner=w1&token=1", "", 403, problem + "superseded", nil},
			{"DELETE", "/locks/a%2Fb?owner=w2", "", 403, problem + "not-owner", nil},
			{"GET", "/admin/locks?prefix=a%2F", "", 200, "locks", nil},
			{"DELETE", "/admin/locks/a%2Fb?reason=stuck", "", 428, problem + "token-required", nil},
			{"DELETE", "/admin/locks/a%2Fb?reason=stuck&token=999999", "", 412, problem + "token-mismatch", nil},
			{"DELETE", "/locks/a%2Fb?owner=w1", "", 204, "", nil},
			{"DELETE", "/locks/a%2Fb?owner=w1", "", 404, problem + "not-held", nil},
			{"POST", "/locks/a%2Fb", held, 200, "lock", nil},
			{"POST", "/locks/a%2Fb/renew", held, 409, problem + "expired", expire},
			{"DELETE", "/locks/a%2Fb?owner=w1", "", 404, problem + "expired", nil},
			{"POST", "/locks/a%2Fb", `{"owner":"w1","ttl_seconds":0}`, 422, problem + "invalid-field", nil},
			{"POST", "/locks/a%2Fb", `{"owner":"w1","ttl_seconds":30.5}`, 400, problem + "malformed-request", nil},
			{"POST", "/locks/http:x", held, 403, problem + "reserved-resource", nil},
			{"POST", "/locks/a%2Fb", held, 503, problem + "unavailable", func() { exec(t, db, "ALTER TABLE distributed_locks RENAME TO gone") }},
		} {
			if step.before != nil {
				step.before()
			}
			status, answer := send(step.method, step.target, step.body)
			if status != step.status {
				t.Errorf("%s %s %s = %d %v, want %d", step.method, step.target, step.body, status, answer, step.status)
			}
			_, member := answer[step.want]
			if step.want != "" && answer["type"] != step.want && !member {
				t.Errorf("%s %s = %v, want %s", step.method, step.target, answer, step.want)
			}
		}
	})
}
