package election

import (
	"context"
	"math/rand/v2"
	"time"
)

// pauses double from least to most; each is shortened by a random part of up to half, so that many who were told the same do
// not come back together.
type pauses struct{ bound, most time.Duration }

func newPauses(least, most time.Duration) pauses { return pauses{least, most} }

func (p *pauses) next() time.Duration {
	pause := p.bound - jitter(p.bound/2)
	p.bound = min(2*p.bound, p.most)
	return pause
}

// jitter is a random part of d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// sleep reports whether it slept to the end: not when the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
