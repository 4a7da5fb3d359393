package dberror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Wrap says what failed, and makes recognisable what callers branch on, whatever the driver calls it: a context's end; a
// transaction that cannot be used, as [locks.ErrInvalid]; and what is worth a new try, as [locks.ErrRetryable]. Nil, and
// an answer of package locks, stay as they are.
func Wrap(ctx context.Context, what string, err error) error {
	if err == nil || IsAnswer(err) {
		return err
	}
	if ended := ContextEnd(ctx); ended != nil {
		if errors.Is(err, ended) {
			return fmt.Errorf("%s: %w", what, err)
		}
		return fmt.Errorf("%s: %w: %w", what, ended, err)
	}
	if kind := kindOf(err); kind != nil {
		return fmt.Errorf("%s: %w: %w", what, kind, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func kindOf(err error) error {
	switch SQLState(err) {
	case SerializationFailure, DeadlockDetected:
		return locks.ErrSerialization
	case LockNotAvailable, IdleInTransaction: // of the second, the server had ended the transaction before it was asked
		return locks.ErrBusy
	case TransactionAborted:
		return unusable("was aborted by an error before this call: it can only be rolled back")
	case NoTransaction:
		return unusable("has not begun on this connection, or is over")
	case ReadOnlyTransaction:
		return unusable("must not be read-only: what is changed or guarded in it is a write")
	case "":
	default:
		return nil
	}
	switch {
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, sql.ErrConnDone):
		return unusable("is over")
	case SQLiteCode(err) == SQLiteBusySnapshot:
		return locks.ErrStaleSnapshot
	case IsSQLiteBusy(err):
		return locks.ErrBusy
	}
	return nil
}

// IsRetryable reports whether a driver's error is one that a new transaction may not meet again.
func IsRetryable(err error) bool { return errors.Is(kindOf(err), locks.ErrRetryable) }

func unusable(reason string) error { return &locks.InvalidError{Field: "transaction", Reason: reason} }

// IsAnswer reports whether err is one of those that package locks gives a name.
func IsAnswer(err error) bool {
	for _, answer := range []error{
		locks.ErrHeld, locks.ErrSlots, locks.ErrLost, locks.ErrNotFound, locks.ErrGuarded, locks.ErrRetryable, locks.ErrInvalid,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// ContextEnd is ctx.Err, and does not miss a deadline that has passed: a driver that gives it to the socket can be told
// so before the context's own timer has run.
func ContextEnd(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
