package lockhttp

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// claim is what one request asks the store for, in one try, or in several with the same attempt.
type claim struct {
	api     *API
	r       *http.Request
	request locks.Request
	named   bool // the client named the attempt, and its retry must find the grant
	open    bool // a try had no answer: it may have been granted
	dropped atomic.Bool
}

// try asks once. A grant that comes when try has given up is left to the tries after it, which find it by its attempt.
func (c *claim) try(ctx context.Context) (locks.Lock, error) {
	lock, err := call.Do(ctx, c.api.limit, func(ctx context.Context) (locks.Lock, error) {
		return c.api.store.Acquire(ctx, c.request)
	}, func(_ locks.Lock, err error) {
		if c.dropped.Load() && !c.named && mayBeGranted(err) {
			c.giveBack(err == nil)
		}
	})
	if err != nil && mayBeGranted(err) {
		c.open = true
	}
	return lock, err
}

// drop is for a request that ends without its lease, though perhaps it was granted.
func (c *claim) drop(granted bool) {
	c.dropped.Store(true) // first: from here on a late answer gives back by itself
	if !c.named && (granted || c.open) {
		c.giveBack(granted)
	}
}

func (c *claim) giveBack(granted bool) { c.api.giveBack(c.r, c.request, granted) }
