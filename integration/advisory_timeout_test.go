package integration_test

import (
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// A statement_timeout that is shorter than the wait cuts it into pieces; what ends it is its limit, as held.
func TestAdvisoryWaitBeyondTheStatementTimeout(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	defer unlock(t, lockNow(t, advisoryLocker(t, open(t, "pgx", dsn)), "a"))
	const timeouts = "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')"
	limit := advisory.WithLimit(3500 * time.Millisecond)

	tx := begin(t, open(t, "pgx", dsn), nil)
	if _, err := tx.ExecContext(t.Context(), "SET LOCAL statement_timeout = '3s'"); err != nil {
		t.Fatal(err)
	}
	ofTx := make(chan error, 1)
	go func() { ofTx <- advisory.LockTx(t.Context(), tx, "a", limit) }()

	db, mine := onePool(t, "pgx", dsn)
	exec(t, db, "SET statement_timeout = '3s'")
	backend := scan[int](t, db, "SELECT pg_backend_pid()")
	_, err := mine.Lock(t.Context(), "a", limit)
	held(t, "Lock", err)
	if again := scan[int](t, db, "SELECT pg_backend_pid()"); again != backend {
		t.Errorf("backend %d after a refusal, want %d", again, backend)
	}
	if got := scan[string](t, db, timeouts); got != "0 3s" {
		t.Errorf("timeouts are %q after Lock, want them as before", got)
	}

	held(t, "LockTx", within(t, "the answer of LockTx", ofTx))
	if got := inTx(t, tx, timeouts); got != "0 3s" {
		t.Errorf("timeouts are %q after LockTx, want them as before", got)
	}
}
