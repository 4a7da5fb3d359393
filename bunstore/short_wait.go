package bunstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// shortWait asks until the matter is settled, with growing pauses, for no longer than the guard limit; then, or when the
// context ends before, it answers that somebody else has the resource. It does not wait in the database: a statement that
// waits holds what it has, can be a part of a deadlock, and an error that ends it aborts the caller's transaction.
func (r runner) shortWait(ctx context.Context, busy error, resource string, ask func() (settled bool, err error)) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		settled, err := ask()
		if settled {
			return err
		}
		left := r.guardLimit - time.Since(began)
		if left <= 0 {
			return fmt.Errorf("%w: %q, for %v", busy, resource, time.Since(began).Round(time.Millisecond))
		}
		timer := time.NewTimer(min(left, pause/2+rand.N(pause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w: %q", busy, ctx.Err(), resource)
		}
	}
}
