package locks

import (
	"context"
	"errors"
	"sync"
	"time"
)

// claim is what an attempt that the locker itself named is at: an answer of one of its requests can come late, and then
// means a grant to nobody, unless the claim is held.
type claim struct {
	mu   sync.Mutex
	over bool // nobody waits for it and nobody holds it
	// unanswered is whether a request got no answer: it can be carried out yet, even after the lease was released.
	unanswered bool
}

func (c *claim) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered = true
}

func (c *claim) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unanswered
}

func (c *claim) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

func (c *claim) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// abandon ends the claim and frees in the background what its requests may have been granted or may yet be. A request
// can still be on its way to the store when the first look finds nothing, so there are more, for as long as the release
// limit, and once more when the locker closes. Looks that fail do not count: a database that was down is asked again,
// until the TTL has passed and the grant is over anyway.
func (l *Locker) abandon(ctx context.Context, a acquisition, c *claim) {
	if a.named {
		return
	}
	c.end()
	l.begin()
	go func() {
		defer l.leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.lease.ttl+l.config.releaseLimit)
		defer cancel()
		start, pause := time.Now(), 2*l.config.minBackoff
		for last := false; ; pause = min(2*pause, l.config.maxBackoff) {
			err := l.free(ctx, a.request)
			looked := err == nil || errors.Is(err, ErrLost)
			if err == nil || last || looked && time.Since(start) >= l.config.releaseLimit {
				return
			}
			switch err := l.pause(ctx, pause); {
			case errors.Is(err, ErrClosed):
				last = true
			case err != nil:
				return
			}
		}
	}()
}

// free releases by attempt, a few at once: a database in trouble is not asked by all who gave up together.
func (l *Locker) free(ctx context.Context, request Request) error {
	select {
	case l.freeing <- struct{}{}:
		defer func() { <-l.freeing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	_, err := ask(ctx, l, l.config.callLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.store.ReleaseAttempt(ctx, request.Resource, request.Owner, request.Attempt)
	}, nil)
	return err
}
