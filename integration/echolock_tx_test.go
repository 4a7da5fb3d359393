package integration_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// The middleware's transaction is the one that the handler writes in: its row and its lease end together.
func TestTheMiddlewaresTransaction(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	exec(t, db, "CREATE TABLE payments (key text, receipt text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	guard := echolock.MiddlewareWithConfig(echolock.Config{Locker: newLocker(t, db), Tx: newStore(t, db)})

	ctx := t.Context() // the requests'
	// serve answers one request by a handler that pays before it does the rest.
	serve := func(key, receipt string, rest echo.HandlerFunc) *httptest.ResponseRecorder {
		e := echo.New()
		e.POST("/pay", func(c echo.Context) error {
			tx := bunstore.TxFrom(echolock.TxFrom(c))
			if tx == nil {
				t.Error("no transaction of bun's")
				return nil
			}
			if _, err := tx.NewRaw("INSERT INTO payments VALUES (?, ?)", key, receipt).Exec(c.Request().Context()); err != nil {
				t.Errorf("insert: %v", err)
			}
			return rest(c)
		}, guard)
		r := httptest.NewRequest(http.MethodPost, "/pay", http.NoBody).WithContext(ctx)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w
	}
	paid := func(c echo.Context) error { return c.String(http.StatusCreated, "paid") }
	want := func(t *testing.T, w *httptest.ResponseRecorder, status int, urn, key string, rows int) {
		t.Helper()
		var problem struct{ Type string }
		if urn != "" {
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
				t.Error(err)
			}
		}
		if w.Code != status || problem.Type != urn {
			t.Errorf("answer = %d %s, want %d %s", w.Code, w.Body, status, urn)
		}
		if got := countPayments(t, db, key); got != rows {
			t.Errorf("%d rows of %s, want %d", got, key, rows)
		}
	}
	free := func(t *testing.T) {
		t.Helper()
		if rows := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); rows != 0 {
			t.Errorf("%d leases left", rows)
		}
		if held := scan[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "+
			"(SELECT oid FROM pg_database WHERE datname = current_database())"); held != 0 {
			t.Errorf("%d advisory locks left", held)
		}
	}

	t.Run("success", func(t *testing.T) {
		want(t, serve("a1", "r1", paid), http.StatusCreated, "", "a1", 1)
		free(t)
	})
	t.Run("500", func(t *testing.T) {
		want(t, serve("a2", "r2", func(c echo.Context) error {
			return c.NoContent(http.StatusInternalServerError)
		}), http.StatusInternalServerError, "", "a2", 0)
		free(t)
	})
	t.Run("error", func(t *testing.T) {
		want(t, serve("a3", "r3", func(c echo.Context) error {
			_ = paid(c)
			return echo.ErrTeapot
		}), http.StatusTeapot, "", "a3", 0)
		free(t)
	})
	t.Run("the second of two", func(t *testing.T) {
		want(t, serve("a4", "r4", func(c echo.Context) error {
			// Within the first: were it to wait for that, neither would ever end.
			second := serve("a4", "r5", func(echo.Context) error { t.Error("it ran"); return nil })
			want(t, second, http.StatusLocked, lockhttp.TypeHeld, "a4", 0)
			return paid(c)
		}), http.StatusCreated, "", "a4", 1)
		free(t)
	})
	t.Run("deferred constraint", func(t *testing.T) {
		w := serve("a6", "r1", paid) // the receipt of a1
		want(t, w, http.StatusServiceUnavailable, lockhttp.TypeUnavailable, "a6", 0)
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("Retry-After = %q, want 1", w.Header().Get("Retry-After"))
		}
		free(t)
	})
	t.Run("session killed", func(t *testing.T) {
		w := serve("a7", "r7", func(c echo.Context) error {
			var pid int
			tx := bunstore.TxFrom(echolock.TxFrom(c))
			if err := tx.NewRaw("SELECT pg_backend_pid()").Scan(c.Request().Context(), &pid); err != nil {
				t.Error(err)
			}
			exec(t, db, "SELECT pg_terminate_backend(?)", pid)
			eventually(t, "the session's end", func() bool {
				return scan[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = ?", pid) == 0
			})
			return paid(c)
		})
		want(t, w, http.StatusServiceUnavailable, lockhttp.TypeUnavailable, "a7", 0)
		free(t)
	})
	t.Run("a statement's error that the handler swallows", func(t *testing.T) {
		w := serve("a8", "r8", func(c echo.Context) error {
			_, _ = bunstore.TxFrom(echolock.TxFrom(c)).ExecContext(c.Request().Context(), "SELECT 1/0")
			return paid(c)
		})
		want(t, w, http.StatusServiceUnavailable, lockhttp.TypeUnavailable, "a8", 0)
		free(t)
	})
	t.Run("client gone", func(t *testing.T) {
		gone, goes := context.WithCancel(t.Context())
		ctx = gone
		w := serve("a9", "r9", func(c echo.Context) error {
			goes()
			return paid(c)
		})
		want(t, w, http.StatusServiceUnavailable, lockhttp.TypeUnavailable, "a9", 0)
		free(t)
	})
}

func countPayments(tb testing.TB, db *bun.DB, key string) int {
	tb.Helper()
	return scan[int](tb, db, "SELECT count(*) FROM payments WHERE key = ?", key)
}
