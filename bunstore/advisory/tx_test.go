package advisory_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/bunstore/advisory"
)

// A wait whose context ends leaves no savepoint in a transaction whose connection has survived that.
func TestLockTxUndoesItsSavepointWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	db, f := newFake(t, func(statement string, _ []driver.NamedValue) (bool, int64, error) {
		if strings.Contains(statement, "pg_advisory_xact_lock") {
			cancel()
			return false, 0, stateError("57014")
		}
		return false, 7, nil
	})
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := advisory.LockTx(ctx, tx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("LockTx = %v, want Canceled", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.executed); n != 2 || !strings.HasPrefix(f.executed[n-1], "ROLLBACK TO SAVEPOINT") {
		t.Errorf("executed %q, want a savepoint and its rollback", f.executed)
	}
}
