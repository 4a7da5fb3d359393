package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/uptrace/bun"
)

// Another writer has the file, and does not let go while the payment tries: the client is told to come again.
func TestBusyDatabase(t *testing.T) {
	t.Parallel()
	database := "file:" + filepath.Join(t.TempDir(), "payments.db")
	app := start(t, database)
	key := fresh("busy")
	paying := app.payInBackground(t, key, "1s")

	db := open(t, database)
	writer, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Second, func() { _, _ = writer.ExecContext(context.Background(), "ROLLBACK") })

	got := <-paying
	if got.err != nil || got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a payment while the file is locked: status %d, error %v: %s", got.status, got.err, got.body)
	}
	eventually(t, func() bool {
		again, err := app.pay(t.Context(), key, "0s")
		if err == nil && again.status >= 500 && again.status != http.StatusServiceUnavailable {
			t.Errorf("status %d: %s", again.status, again.body)
		}
		return err == nil && again.status == http.StatusCreated && again.header.Get("Idempotent-Replayed") == ""
	})
}

// What the handler says of a database that fails, and of a mistake of ours.
func TestProblemOfDatabaseErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil  func(db *bun.DB) error
		status int
	}{
		"closed":   {func(db *bun.DB) error { return db.Close() }, http.StatusServiceUnavailable},
		"no table": {func(db *bun.DB) error { _, err := db.Exec("DROP TABLE payments"); return err }, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			if err := test.spoil(db); err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, db, test.status)
		})
	}
}

func TestIsMistake(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]bool{"23505": true, "42P01": true, "22P02": true, "57P01": false, "53300": false, "08006": false, "40001": false, "": false} {
		if got := isMistake(fmt.Errorf("insert: %w", postgresError(state))); got != want {
			t.Errorf("%q: %v, want %v", state, got, want)
		}
	}
	if isMistake(errors.New("dial tcp: connection refused")) {
		t.Error("a server that is down is taken for a mistake")
	}
}

type postgresError string

func (e postgresError) Error() string    { return "SQLSTATE " + string(e) }
func (e postgresError) SQLState() string { return string(e) }

// overtaking makes the payment in the instant in which the handler has found that there is none.
type overtaking struct{ *payments }

func (overtaking) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (o overtaking) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	if event.Operation() == "SELECT" {
		event.Err = errors.Join(event.Err, o.insert(ctx, payment{ID: "other", IdempotencyKey: "a1", Amount: 100, CreatedAt: time.Now()}))
	}
}

// A process that slept past its lease finds that another has made the payment: it answers that the client shall ask again.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	wantAnswer(t, db.WithQueryHook(overtaking{&payments{db}}), http.StatusServiceUnavailable)
	var ids []string
	if err := db.NewSelect().Model((*payment)(nil)).Column("id").Scan(t.Context(), &ids); err != nil || len(ids) != 1 || ids[0] != "other" {
		t.Errorf("payments = %q, %v; want the other's only", ids, err)
	}
	wantAnswer(t, db, http.StatusCreated) // the other's, again
}

// wantAnswer asks the handler for a payment, without the middleware around it.
func wantAnswer(t *testing.T, db *bun.DB, status int) {
	t.Helper()
	e := echo.New()
	e.HTTPErrorHandler = problems(slog.New(slog.NewTextHandler(t.Output(), nil)))
	e.POST("/payments", (&payments{db}).create)
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":100}`))
	r.Header.Set(keyHeader, "a1")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if again := w.Header().Get("Retry-After"); (again != "") != (status == http.StatusServiceUnavailable) {
		t.Errorf("status %d, Retry-After = %q", w.Code, again)
	}
}

func open(t *testing.T, database string) *bun.DB {
	t.Helper()
	db, err := openDatabase(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func migrated(t *testing.T) *bun.DB {
	t.Helper()
	db := open(t, "file:"+filepath.Join(t.TempDir(), "payments.db"))
	if err := migrateDatabase(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

// Clients that hang up leave work for the background; a stop finishes it and is no failure.
func TestTerminateAfterHangUps(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t))
	for range 20 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(app.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := `{"owner":"w1","ttl_seconds":300}`
		fmt.Fprintf(conn, "POST /locks/%s HTTP/1.1\r\nHost: app\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", fresh("gone"), len(body), body)
		conn.Close()
	}
	took, err := app.signal(t, syscall.SIGTERM)
	if err != nil {
		t.Errorf("exit: %v", err)
	}
	if took > 10*time.Second {
		t.Errorf("exited after %v", took)
	}
}
