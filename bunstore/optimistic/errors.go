package optimistic

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

var (
	// ErrConflict: the row has another version than the one that was read; the error is a [*ConflictError], and also
	// [locks.ErrRetryable]: read the row again, and decide again. Nothing was written.
	ErrConflict = dberror.Sentinel("optimistic: row has another version", locks.ErrRetryable)
	// ErrNotFound: the row is gone, or soft-deleted. It is also [locks.ErrNotFound], and not worth a retry.
	ErrNotFound = dberror.Sentinel("optimistic: no such row", locks.ErrNotFound)
)

// ConflictError says that a row has another version than the one that was read. It is [ErrConflict] and
// [locks.ErrRetryable].
type ConflictError struct {
	// Table is the row's table.
	Table string
	// Read is the struct's version.
	Read int64
	// Current is the row's version as it was read after the refusal. It can be higher by then, and equals Read when the
	// row has come back to it.
	Current int64
}

// Error names both versions.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: read %d of %s, found %d", ErrConflict, e.Read, e.Table, e.Current)
}

// Is reports whether target is [ErrConflict] or [locks.ErrRetryable].
func (e *ConflictError) Is(target error) bool { return errors.Is(ErrConflict, target) }

// RetryError says that [Retry] gave up. It is the last try's error, and also the context's where that has ended.
type RetryError struct {
	// Tries is how often the function ran.
	Tries int
	// Last is the last try's error, which is [locks.ErrRetryable]; nil when there was none.
	Last error
	// Cause is [context.Canceled] or [context.DeadlineExceeded], nil when the tries were used up.
	Cause error
}

// Error tells the tries and the errors.
func (e *RetryError) Error() string {
	text := fmt.Sprintf("optimistic: gave up after %d tries", e.Tries)
	for _, err := range e.Unwrap() {
		text += ": " + err.Error()
	}
	return text
}

// Unwrap returns the context's error and the last try's, as far as there are.
func (e *RetryError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Cause, e.Last} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
