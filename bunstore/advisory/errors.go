package advisory

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

// ErrPooler says that connections go through a pooler in transaction mode, such as PgBouncer's: the lock would be
// taken on one backend, freed on another, and stay.
var ErrPooler = errors.New("advisory: connections go through a pooler in transaction mode, " +
	"where a session lock does not work: connect to PostgreSQL itself or to a pool in session mode, or use LockTx or a lease")

// LostError says that a session's connection was lost, or that the server knew nothing of its lock: the work under it
// may not have been alone. It is [locks.ErrLost].
type LostError struct {
	// Name is what was locked.
	Name string
	// Cause is how it was noticed: the driver's error, or a text.
	Cause error
}

// Error says what is lost and how it was noticed.
func (e *LostError) Error() string {
	return fmt.Sprintf("advisory: session lock %q is lost: %v", e.Name, e.Cause)
}

// Is reports whether target is [locks.ErrLost].
func (e *LostError) Is(target error) bool { return target == locks.ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }
