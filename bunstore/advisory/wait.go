package advisory

import (
	"context"
	"strconv"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
)

// waitSlice is the longest single wait on the server, which waits less under a short statement_timeout. Drivers may stop
// reading after a while whatever the context allows (pgdriver: 10 s by default).
const waitSlice = 4 * time.Second

// wait asks until the lock is granted or the limit is over, at least once. Each ask waits on the server, for slice at
// most, and has to answer within callLimit after that; it returns the server's error when the slice is over.
func wait(
	ctx context.Context, until time.Time, callLimit time.Duration,
	ask func(ctx context.Context, slice string) (bool, error),
) (bool, error) {
	for {
		slice := min(max(time.Until(until), time.Millisecond), waitSlice)
		granted, err := func() (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, slice+callLimit)
			defer cancel()
			return ask(ctx, strconv.FormatInt(transaction.Milliseconds(slice), 10))
		}()
		if !dberror.IsSQLState(err, dberror.LockNotAvailable) {
			return granted, err
		}
		if !time.Now().Before(until) {
			return false, nil
		}
	}
}
