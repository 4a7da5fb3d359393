package fence

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

var (
	// ErrStale: the row has a newer token, so the lease behind the older one is lost; the error is a [*StaleError], and
	// also [locks.ErrLost]. Nothing was written, and no retry with that token will be.
	ErrStale = dberror.Sentinel("fence: token is stale", locks.ErrLost)
	// ErrNotFound: no row has the model's primary key. It is also [locks.ErrNotFound].
	ErrNotFound = dberror.Sentinel("fence: no such row", locks.ErrNotFound)
)

// StaleError says that a row has a newer token. It is [ErrStale] and [locks.ErrLost].
type StaleError struct {
	// Table is the row's table, empty out of [Check].
	Table string
	// Token is the one that was refused.
	Token int64
	// Stored is the newer one, as it was read after the refusal.
	Stored int64
}

// Error names both tokens.
func (e *StaleError) Error() string {
	text := fmt.Sprintf("%v: got %d, stored is %d", ErrStale, e.Token, e.Stored)
	if e.Table != "" {
		text += " in " + e.Table
	}
	return text
}

// Is reports whether target is [ErrStale] or [locks.ErrLost].
func (e *StaleError) Is(target error) bool { return errors.Is(ErrStale, target) }
