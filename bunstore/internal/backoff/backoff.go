// Package backoff is the pause between two tries.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// Backoff tells random pauses below a bound that doubles (full jitter: those who met once do not meet again). Not safe
// for concurrent use.
type Backoff struct{ bound, most time.Duration }

// New bounds the first pause by least, which is positive, and none by more than most.
func New(least, most time.Duration) *Backoff { return &Backoff{bound: least, most: most} }

// Next is the next pause: positive, and not above the bound.
func (b *Backoff) Next() time.Duration {
	pause := rand.N(b.bound) + 1
	if b.bound > b.most/2 { // twice the bound could overflow
		b.bound = b.most
	} else {
		b.bound *= 2
	}
	return pause
}

// Wait pauses, or returns the context's end as soon as that comes.
func Wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return dberror.ContextEnd(ctx)
}
