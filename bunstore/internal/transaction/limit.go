package transaction

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// MaxLimit is the longest limit of a wait or a call, well below what PostgreSQL's timeouts and the sum of two can hold.
const MaxLimit = 24 * time.Hour

// CheckLimit refuses, as an [*locks.InvalidError], a limit below least or above [MaxLimit].
func CheckLimit(field string, limit, least time.Duration) error {
	if limit < least || limit > MaxLimit {
		return &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must be from %v to %v, got %v", least, MaxLimit, limit)}
	}
	return nil
}

// Milliseconds is how PostgreSQL's timeouts are set. It rounds up: 0 would mean without a limit.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
