package locks

import (
	"math/rand/v2"
	"time"
)

// backoff is exponential with full jitter: each pause is random between 0 and a bound that doubles, so that many who
// were refused together do not come back together.
type backoff struct {
	bound, most time.Duration
}

func (b *backoff) next() time.Duration {
	pause := rand.N(b.bound + 1)
	b.bound = min(2*b.bound, b.most)
	return pause
}

// jitter is a random part of d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }
