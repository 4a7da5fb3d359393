package lockhttp

import (
	"errors"
	"net/http"

	"github.com/rowlease/rowlease/locks"
)

// TypePrefix begins every problem type. The types are stable names, not addresses.
const TypePrefix = "urn:rowlease:problem:"

// The problem types. A program branches on these, never on title or detail.
const (
	TypeHeld                 = TypePrefix + "held"
	TypeNotHeld              = TypePrefix + "not-held"
	TypeExpired              = TypePrefix + "expired"
	TypeNotOwner             = TypePrefix + "not-owner"
	TypeSuperseded           = TypePrefix + "superseded"
	TypeGuarded              = TypePrefix + "guarded"
	TypeMalformed            = TypePrefix + "malformed-request"
	TypeInvalid              = TypePrefix + "invalid-field"
	TypeMediaType            = TypePrefix + "unsupported-media-type"
	TypeTooLarge             = TypePrefix + "body-too-large"
	TypeUnauthenticated      = TypePrefix + "unauthenticated"
	TypeForbidden            = TypePrefix + "forbidden"
	TypeReserved             = TypePrefix + "reserved-resource"
	TypePreconditionRequired = TypePrefix + "token-required"
	TypePreconditionFailed   = TypePrefix + "token-mismatch"
	TypeBusy                 = TypePrefix + "busy"
	TypeUnavailable          = TypePrefix + "unavailable"
	TypeNoRoute              = TypePrefix + "no-such-route"
	TypeMethod               = TypePrefix + "method-not-allowed"
	TypeNoQueue              = TypePrefix + "no-queue"
	TypeOtherSlots           = TypePrefix + "other-slots"
	TypeNoShares             = TypePrefix + "no-shares"
	TypeLost                 = TypePrefix + "lost" // only the middleware's: the lease on a request was lost while it ran
)

// reason is why a request is refused.
type reason uint8

const (
	unavailable reason = iota // the zero value is the cautious one
	busy
	held
	notHeld
	expired
	notOwner
	superseded
	guarded
	malformed
	invalid
	mediaType
	tooLarge
	unauthenticated
	forbidden
	reserved
	tokenRequired
	tokenMismatch
	noRoute
	noQueue
	otherSlots
	noShares
	lost
	wrongMethod
)

// always stands in the table for every action that has no row of its own.
const always Action = ""

// statusTable is the whole of the mapping from a reason, and the action it came up in, to an answer. The one status
// that is not here is [Config.HeldStatus], since the host chooses it; the one here for held is the middleware's.
var statusTable = []struct {
	reason  reason
	action  Action
	status  int
	urn     string
	title   string
	seconds int // Retry-After, 0 for none
}{
	{held, always, http.StatusLocked, TypeHeld, "The resource is held", 1},

	{otherSlots, always, http.StatusConflict, TypeOtherSlots, "The resource is held in another way", 0},

	{notHeld, ActionRenew, http.StatusConflict, TypeNotHeld, "The resource is not held", 0},
	{expired, ActionRenew, http.StatusConflict, TypeExpired, "The lease has expired", 0},
	{notOwner, ActionRenew, http.StatusConflict, TypeNotOwner, "Another owner holds the resource", 0},
	{superseded, ActionRenew, http.StatusConflict, TypeSuperseded, "A newer grant of the same owner holds the resource", 0},

	{notHeld, ActionRelease, http.StatusNotFound, TypeNotHeld, "The resource is not held", 0},
	{expired, ActionRelease, http.StatusNotFound, TypeExpired, "The lease has expired", 0},
	{notOwner, ActionRelease, http.StatusForbidden, TypeNotOwner, "Another owner holds the resource", 0},
	{superseded, ActionRelease, http.StatusForbidden, TypeSuperseded, "A newer grant of the same owner holds the resource", 0},

	{notOwner, ActionForceRelease, http.StatusPreconditionFailed, TypePreconditionFailed, "Another grant holds the resource", 0},
	{superseded, ActionForceRelease, http.StatusPreconditionFailed, TypePreconditionFailed, "Another grant holds the resource", 0},
	{tokenMismatch, always, http.StatusPreconditionFailed, TypePreconditionFailed, "Another grant holds the resource", 0},
	{tokenRequired, always, http.StatusPreconditionRequired, TypePreconditionRequired, "The token of the grant is required", 0},

	{notHeld, always, http.StatusNotFound, TypeNotHeld, "The resource is not held", 0},
	{expired, always, http.StatusNotFound, TypeExpired, "The lease has expired", 0},
	{notOwner, always, http.StatusConflict, TypeNotOwner, "Another owner holds the resource", 0},
	{superseded, always, http.StatusConflict, TypeSuperseded, "A newer grant of the same owner holds the resource", 0},
	{guarded, always, http.StatusConflict, TypeGuarded, "A transaction guards the lease", 1},

	{malformed, always, http.StatusBadRequest, TypeMalformed, "The request is malformed", 0},
	{invalid, always, http.StatusUnprocessableEntity, TypeInvalid, "A field breaks a rule", 0},
	{mediaType, always, http.StatusUnsupportedMediaType, TypeMediaType, "The body must be plain application/json", 0},
	{tooLarge, always, http.StatusRequestEntityTooLarge, TypeTooLarge, "The body is too large", 0},
	{unauthenticated, always, http.StatusUnauthorized, TypeUnauthenticated, "Credentials are required", 0},
	{forbidden, always, http.StatusForbidden, TypeForbidden, "This is not allowed", 0},
	{reserved, always, http.StatusForbidden, TypeReserved, "The resource belongs to the middleware", 0},
	{noRoute, always, http.StatusNotFound, TypeNoRoute, "There is nothing here", 0},
	{wrongMethod, always, http.StatusMethodNotAllowed, TypeMethod, "The method is not allowed here", 0},

	{noQueue, always, http.StatusNotImplemented, TypeNoQueue, "The store has no queue", 0},
	{noShares, always, http.StatusNotImplemented, TypeNoShares, "The store has no shared leases", 0},
	{lost, always, http.StatusServiceUnavailable, TypeLost, "The lease was lost", 1},
	{busy, always, http.StatusServiceUnavailable, TypeBusy, "The store is busy", 1},
	{unavailable, always, http.StatusServiceUnavailable, TypeUnavailable, "Leases are not available now", 5},
}

// problem looks the reason up in the table.
func (r reason) problem(action Action) Problem {
	found := -1
	for i, row := range statusTable {
		if row.reason != r {
			continue
		}
		if row.action == action {
			found = i
			break
		}
		if row.action == always {
			found = i
		}
	}
	if found < 0 { // a reason without a row is a mistake of ours, which the tests exclude
		return unavailable.problem(action)
	}
	row := statusTable[found]
	return Problem{Type: row.urn, Title: row.title, Status: row.status, RetryAfterSeconds: row.seconds}
}

// reasonOf sorts a store's error. What is none of the named ones is a fault, and never an answer.
func reasonOf(err error) reason {
	for _, known := range []struct {
		err    error
		reason reason
	}{
		{locks.ErrSlots, otherSlots}, // a wait's error may tell of the holder before, too
		{locks.ErrHeld, held},
		{locks.ErrExpired, expired},
		{locks.ErrNotOwner, notOwner},
		{locks.ErrSuperseded, superseded},
		{locks.ErrLost, notHeld},
		{locks.ErrNotFound, notHeld},
		{locks.ErrGuarded, guarded},
		{locks.ErrInvalid, invalid},
		{locks.ErrRetryable, busy},
	} {
		if errors.Is(err, known.err) {
			return known.reason
		}
	}
	return unavailable
}
