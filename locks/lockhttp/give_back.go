package lockhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// giveBackPauses are before the tries to give a grant back. One try is not enough: the acquire may still be under way in
// the database, and be granted after it.
var giveBackPauses = [...]time.Duration{0, 200 * time.Millisecond, 2 * time.Second}

const (
	// giveBackLimit is how long all tries may take. Then the lease's own end frees the resource.
	giveBackLimit = 10 * time.Second
	// giveBackCalls is how many of these calls may be under way, so that a database in trouble does not get more of it.
	giveBackCalls = 4
)

// giveBack frees, in the background, what the request's attempt was granted or may yet be.
func (a *API) giveBack(r *http.Request, request locks.Request) {
	values := detached(r)
	a.background.start(func() {
		ctx, cancel := context.WithTimeout(values, giveBackLimit)
		defer cancel()
		var err error
		for _, pause := range giveBackPauses {
			if err = a.tryGiveBack(ctx, pause, request); err == nil {
				return
			}
		}
		if !errors.Is(err, locks.ErrNotHeld) {
			a.logger.WarnContext(ctx, "lockhttp: a lease nobody knows of may last until its end",
				"resource", request.Resource, "ttl", request.TTL, "error", err)
		}
	})
}

func (a *API) tryGiveBack(ctx context.Context, pause time.Duration, request locks.Request) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case a.givingBack <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.givingBack }()
	_, err := call.Do(ctx, a.limit, func(ctx context.Context) (none, error) {
		return none{}, a.store.ReleaseAttempt(ctx, request.Resource, request.Owner, request.Attempt)
	}, nil)
	return err
}
