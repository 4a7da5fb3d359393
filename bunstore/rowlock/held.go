package rowlock

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// HeldError is the answer "another transaction has the row". It is [locks.ErrHeld] and leaves the transaction usable.
// PostgreSQL gives it as SQLSTATE 55P03, which means nothing else; every other error of the database stays a fault.
type HeldError struct {
	// Table is the model's, as bun names it.
	Table string
	// Limit is how long the call was ready to wait, 0 where it was not, see [NoWait] and [SkipLocked].
	Limit time.Duration
	// Err is the driver's error, nil where the row was skipped.
	Err error
}

// Error names the table and the limit; it never tells the row's key.
func (e *HeldError) Error() string {
	text := fmt.Sprintf("rowlock: a row of %q is locked by another transaction", e.Table)
	if e.Limit > 0 {
		text += fmt.Sprintf(" for longer than %v", e.Limit)
	}
	return text
}

// Is reports whether target is [locks.ErrHeld].
func (e *HeldError) Is(target error) bool { return target == locks.ErrHeld }

// Unwrap returns the driver's error.
func (e *HeldError) Unwrap() error { return e.Err }
