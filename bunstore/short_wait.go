package bunstore

import (
	"context"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/backoff"
)

// shortWait asks until the matter is settled, with growing pauses, for no longer than the guard limit; then, or when the
// context ends before, it answers that somebody else has the resource. It does not wait in the database: a statement that
// waits holds what it has, can be a part of a deadlock, and an error that ends it aborts the caller's transaction.
func (r runner) shortWait(ctx context.Context, busy error, resource string, ask func() (settled bool, err error)) error {
	began := time.Now()
	pauses := backoff.New(2*time.Millisecond, 100*time.Millisecond)
	for {
		settled, err := ask()
		if settled {
			return err
		}
		left := r.guardLimit - time.Since(began)
		if left <= 0 {
			return fmt.Errorf("%w: %q, for %v", busy, resource, time.Since(began).Round(time.Millisecond))
		}
		if ended := backoff.Wait(ctx, min(left, pauses.Next())); ended != nil {
			return fmt.Errorf("%w: %w: %q", busy, ended, resource)
		}
	}
}
