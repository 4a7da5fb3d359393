package lockhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxAskedWait is the longest wait that a query may ask for; what is longer is a mistake.
const maxAskedWait = 24 * time.Hour

// durationText is a duration as a query writes it: numbers with units.
var durationText = regexp.MustCompile(`^-?([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`)

// readWait returns how long the request wants to wait, capped by the host's limit, and whether that is a preference, which
// is confirmed when it is honoured.
func (a *API) readWait(header http.Header, query query) (wait time.Duration, preferred bool, err error) {
	text, inQuery, err := query.one("wait")
	if err != nil {
		return 0, false, err
	}
	if inQuery {
		if wait, err = waitFrom(text); err != nil {
			return 0, false, err
		}
	}
	preference, preferred := preferredWait(header)
	if preferred && inQuery && preference != wait {
		return 0, false, differs("wait")
	}
	if preferred {
		wait = preference
	}
	return min(wait, a.maxWait), preferred && a.maxWait > 0, nil
}

// waitFrom reads a wait out of a query: a number of seconds, or a duration as Go writes it.
func waitFrom(text string) (time.Duration, error) {
	outOfRule := &locks.InvalidError{Field: "wait", Reason: fmt.Sprintf("must be from 0 to %v", maxAskedWait)}
	if isInteger(text) {
		text += "s"
	}
	if !durationText.MatchString(text) {
		return 0, refuse(malformed, "wait", "wait must be a number of seconds, 30, or a duration, 30s, 1m30s, 500ms.")
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxAskedWait { // of these texts, ParseDuration refuses those that are too long
		return 0, outOfRule
	}
	return wait, nil
}

// waitFor tries until the lease is granted or the wait is over.
func (a *API) waitFor(w http.ResponseWriter, r *http.Request, asked acquisition, c *claim) (locks.Lock, error) {
	deadline := NewWriteDeadline(r.Context(), w)
	limit := deadline.Wait(asked.wait)
	defer deadline.End()
	if asked.preferred {
		w.Header().Set(appliedHeader, fmt.Sprintf("wait=%d", int(limit.Seconds())))
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	options := locks.WaitOptions{
		MaxWaiters: a.maxWaiters, CallLimit: a.limit, Closing: a.background.closing, Background: a.background.run,
	}
	// A try that is under way when the wait ends may finish: its answer is worth more than that there is none.
	lock, err := locks.Wait(ctx, a.store, asked.request, options, func(context.Context) (locks.Lock, error) {
		return c.try(r.Context())
	})
	var other *locks.SlotsError
	switch {
	case errors.As(err, &other): // also where the wait has just ended, and the error tells of the holder before
		return lock, other
	case errors.Is(err, locks.ErrClosed):
		return lock, shuttingDown(err)
	case errors.Is(err, locks.ErrHeld):
		return lock, a.heldNow(r, asked.request, err)
	}
	return lock, err
}

// heldNow is the answer "held" with what is true of the holder now: a waiter was refused when it came, perhaps long ago.
func (a *API) heldNow(r *http.Request, request locks.Request, err error) error {
	held := locks.Held(request.Resource, nil)
	if !errors.Is(r.Context().Err(), context.Canceled) { // a host's deadline leaves somebody to answer
		holder, err := call.Do(context.WithoutCancel(r.Context()), a.limit, func(ctx context.Context) (locks.Lock, error) {
			return a.inTheWay(ctx, request)
		}, nil)
		if err == nil {
			held = locks.Held(request.Resource, &holder)
		}
	}
	if errors.Is(err, locks.ErrQueueFull) {
		return fmt.Errorf("%w: %w", locks.ErrQueueFull, held)
	}
	return held
}

func shuttingDown(cause error) error {
	return &refusalError{reason: unavailable, detail: "The server is shutting down.", cause: cause}
}
