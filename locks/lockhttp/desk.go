package lockhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// desk is what [API] and [Admin] share: it lets a request in, and turns errors into answers.
type desk struct {
	authorize Authorizer
	challenge string
	limit     time.Duration
	logger    *slog.Logger
}

// serve runs one request: whatever error comes out becomes a problem.
func (d *desk) serve(w http.ResponseWriter, r *http.Request, action Action, resource string, handle func() error) {
	err := handle()
	if err == nil {
		return
	}
	refusal := refusalOf(err)
	d.log(r, action, resource, refusal)
	switch {
	case refusal.reason == unauthenticated:
		w.Header().Set("WWW-Authenticate", d.challenge)
	case refusal.reason == mediaType && refusal.field == "Content-Encoding":
		w.Header().Set("Accept-Encoding", "identity")
	case refusal.reason == mediaType:
		w.Header().Set("Accept", "application/json")
	}
	if err := refusal.problem(action).Write(w, r); err != nil {
		d.logger.DebugContext(r.Context(), "lockhttp: answer lost", "action", string(action), "error", err)
	}
}

// deliver writes the answer to a request that changed nothing that would have to be undone when the answer is lost.
func (d *desk) deliver(w http.ResponseWriter, r *http.Request, value any) error {
	if err := answer(w, r, http.StatusOK, value); err != nil {
		d.logger.DebugContext(r.Context(), "lockhttp: answer lost", "error", err)
	}
	return nil
}

// log tells the host of faults. A client that went away is not one.
func (d *desk) log(r *http.Request, action Action, resource string, refusal *refusalError) {
	if refusal.reason != unavailable && refusal.reason != busy || errors.Is(refusal.cause, locks.ErrClosed) {
		return
	}
	level := slog.LevelError
	switch {
	case r.Context().Err() != nil:
		level = slog.LevelDebug
	case refusal.reason == busy:
		level = slog.LevelWarn
	}
	attributes := []any{"action", string(action), "resource", resource, "error", refusal.cause}
	var panicked *call.PanicError
	if errors.As(refusal.cause, &panicked) {
		attributes = append(attributes, "stack", string(panicked.Stack))
	}
	d.logger.Log(context.WithoutCancel(r.Context()), level, "lockhttp: store failed", attributes...)
}

// admit decides whether the request may go on. The resource's rules come first, so that an authorizer never sees a name
// that cannot be one.
func (d *desk) admit(r *http.Request, action Action, resource string) error {
	if err := validateResource(resource); err != nil {
		return err
	}
	return d.permit(r, action, resource)
}

func (d *desk) permit(r *http.Request, action Action, resource string) error {
	if d.authorize == nil {
		return nil
	}
	err := d.authorize(r, action, resource)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnauthenticated):
		return &refusalError{reason: unauthenticated, cause: err}
	default:
		return &refusalError{reason: forbidden, cause: err}
	}
}

// validateResource has one rule more than package locks: clients fold the path segments . and .. away.
func validateResource(resource string) error {
	if resource == "." || resource == ".." {
		return &locks.InvalidError{Field: "resource", Reason: "must not be . or .. in a path"}
	}
	return locks.ValidateResource(resource)
}
