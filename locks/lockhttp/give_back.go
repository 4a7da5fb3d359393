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
	// giveBackPending is how many grants may wait to be given back, so that an outage costs no more memory than that.
	giveBackPending = 1000
)

// giveBack frees, in the background, what the request's attempt was granted or, unless that is known, may yet be.
func (a *API) giveBack(r *http.Request, request locks.Request, granted bool) {
	values := detached(r)
	started := a.background.start(func() {
		ctx, cancel := context.WithTimeout(values, giveBackLimit)
		defer cancel()
		if err := a.tryGiveBack(ctx, request, granted); err != nil && !errors.Is(err, locks.ErrNotHeld) {
			a.logLeftover(ctx, request, err)
		}
	})
	if !started {
		a.logLeftover(values, request, errTooManyPending)
	}
}

var errTooManyPending = errors.New("lockhttp: too many grants wait to be given back")

func (a *API) logLeftover(ctx context.Context, request locks.Request, err error) {
	a.logger.WarnContext(ctx, "lockhttp: a lease nobody knows of may last until its end",
		"resource", request.Resource, "ttl", request.TTL, "error", err)
}

// tryGiveBack tries until the grant is freed. That there is none (any more) ends it too where the grant is known to have
// been made; else it may come yet. A close cuts the pauses short, and the try after it is the last.
func (a *API) tryGiveBack(ctx context.Context, request locks.Request, granted bool) (err error) {
	for _, pause := range giveBackPauses {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-a.background.closing:
		case <-ctx.Done():
		}
		timer.Stop()
		last := a.background.isClosed()
		err = a.releaseAttempt(ctx, request)
		if err == nil || granted && errors.Is(err, locks.ErrNotHeld) || last || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func (a *API) releaseAttempt(ctx context.Context, request locks.Request) error {
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
