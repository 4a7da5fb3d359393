package lockhttp

import (
	"errors"

	"github.com/rowlease/rowlease/locks"
)

// refusalError is the error that becomes a problem: a reason for the table, and what the problem says besides.
type refusalError struct {
	reason reason
	field  string
	detail string
	cause  error // for the log only
}

func (r *refusalError) Error() string {
	if r.cause != nil {
		return r.cause.Error()
	}
	return r.detail
}

func (r *refusalError) Unwrap() error { return r.cause }

func (r *refusalError) problem(action Action) Problem {
	p := r.reason.problem(action)
	p.Field, p.Detail = r.field, r.detail
	return p
}

func refuse(reason reason, field, detail string) error {
	return &refusalError{reason: reason, field: field, detail: detail}
}

// wireNames are the names that a request has for what package locks calls otherwise.
var wireNames = map[string]string{"ttl": "ttl_seconds", "attempt": attemptHeader, "after": "cursor"}

// details are the words for reasons that come from the store.
var details = map[reason]string{
	notHeld:     "No live lease of the resource is there.",
	expired:     "The lease ended by time before the request came.",
	notOwner:    "The owner that the request names is not the holder.",
	superseded:  "The token that the request names is not the holder's.",
	otherSlots:  "The resource is held in a way that this request does not fit to.",
	guarded:     "Try again when the transaction has ended.",
	lost:        "The lease on this request was lost while it ran: it may not have been alone.",
	busy:        "Nothing was changed. Try again.",
	unavailable: "The store of leases did not answer in time, or failed.",
}

// refusalOf sorts any error. Of a store's errors only an [locks.InvalidError] lends its words, which name a rule.
func refusalOf(err error) *refusalError {
	var own *refusalError
	if errors.As(err, &own) {
		return own
	}
	var broken *locks.InvalidError
	if errors.As(err, &broken) {
		field := broken.Field
		if name, ok := wireNames[field]; ok {
			field = name
		}
		return &refusalError{reason: invalid, field: field, detail: field + " " + broken.Reason, cause: err}
	}
	var slots *locks.SlotsError
	if errors.As(err, &slots) {
		return &refusalError{reason: otherSlots, detail: slotsDetail(slots), cause: err}
	}
	reason := reasonOf(err)
	return &refusalError{reason: reason, detail: details[reason], cause: err}
}
