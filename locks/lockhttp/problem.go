package lockhttp

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// ProblemMediaType is the content type of a [Problem].
const ProblemMediaType = "application/problem+json"

// Problem is a refusal in the form of RFC 9457. As JSON its members are type, title, status, and, where they say
// something, detail, field and retry_after_seconds. A problem of [TypeHeld] has acquired (false), resource (where it is
// given), retry_after_seconds and holder besides; holder is null when it is not known. queue_full is true where it is said.
type Problem struct {
	// Type is the problem's stable name, one of the Type constants.
	Type string
	// Title is the same for all problems of a type.
	Title string
	// Status is the HTTP status.
	Status int
	// Detail says what is wrong with this request, in words for people.
	Detail string
	// Field names the member, query parameter or header that is at fault.
	Field string
	// Resource is the resource that is held; only for [TypeHeld].
	Resource string
	// RetryAfterSeconds is also the header Retry-After; 0 is none.
	RetryAfterSeconds int
	// Holder is what may be told of the holder; only for [TypeHeld].
	Holder *Holder
	// QueueFull tells that the request would have waited, but as many wait as may; only for [TypeHeld].
	QueueFull bool
}

// Holder is what a "held" answer tells of the lease that stands in the way. As JSON it is acquired_at and expires_at, where
// it is shared "shared":true or slots, and, where they are given, owner and metadata, and token.
type Holder struct {
	AcquiredAt, ExpiresAt time.Time
	// Slots is how it is held, see [locks.Lock].
	Slots int
	// Owner, Token and Metadata are told only where the host shows them to all.
	Owner    string
	Token    int64
	Metadata json.RawMessage
}

// Held returns the problem "the resource is held" with this status: 423 is what the word means, 409 what some clients
// want. It tells when the lease began and when it ends, and nothing of the owner. It is for middleware too; held may be
// nil when nothing is known.
func Held(held *locks.HeldError, status int) Problem {
	return heldProblem(held, status, false)
}

func heldProblem(err *locks.HeldError, status int, showAll bool) Problem {
	p := held.problem(always)
	p.Status = status
	p.Detail = "Somebody else holds the resource, or is just changing its lease."
	if err == nil {
		return p
	}
	p.RetryAfterSeconds = RetryAfter(err.Remaining)
	if err.Holder != nil {
		p.Holder = &Holder{AcquiredAt: err.Holder.AcquiredAt, ExpiresAt: err.Holder.ExpiresAt, Slots: err.Holder.Slots}
		if showAll {
			p.Holder.Owner, p.Holder.Token, p.Holder.Metadata = err.Holder.Owner, err.Holder.Token, err.Holder.Metadata
		}
	}
	return p
}

// HeldQueueFull is [Held] for a request that would have waited, but as many wait as may: [locks.ErrQueueFull].
func HeldQueueFull(held *locks.HeldError, status int) Problem {
	return Held(held, status).withQueueFull()
}

func (p Problem) withQueueFull() Problem {
	p.Detail, p.QueueFull = "Somebody else holds the resource, and as many wait for it as may.", true
	return p
}

// ProblemOf returns the problem that the status table has for an error of package locks that came up during the action.
// It is for middleware; a held resource is 423 here. The error's text does not appear in it.
func ProblemOf(err error, action Action) Problem {
	var holder *locks.HeldError
	known, full := errors.As(err, &holder), errors.Is(err, locks.ErrQueueFull)
	switch status := held.problem(action).Status; {
	case errors.Is(err, locks.ErrSlots): // a wait's error may tell of the holder before, too
		return refusalOf(err).problem(action)
	case full:
		return HeldQueueFull(holder, status)
	case known:
		return Held(holder, status)
	}
	return refusalOf(err).problem(action)
}

// Malformed returns the problem of a request that cannot be read, for middleware. The field names what is at fault, a
// header for one.
func Malformed(field, detail string) Problem {
	return (&refusalError{reason: malformed, field: field, detail: detail}).problem(always)
}

// TooLarge returns the problem of a body that is larger than a limit, for middleware.
func TooLarge(detail string) Problem {
	return (&refusalError{reason: tooLarge, field: "body", detail: detail}).problem(always)
}

// Lost returns the problem of a request whose lease was lost while it ran, for middleware.
func Lost() Problem {
	return (&refusalError{reason: lost, detail: details[lost]}).problem(always)
}

// RetryAfter returns the seconds for a Retry-After header: the time left rounded up, at least 1.
func RetryAfter(left time.Duration) int {
	return max(1, wholeSeconds(left))
}

// wholeSeconds rounds up. Stores measure in microseconds, some through floating point: a nanosecond over is noise and
// not another second.
func wholeSeconds(left time.Duration) int {
	if left <= 0 {
		return 0
	}
	return max(1, int(math.Ceil(left.Round(time.Microsecond).Seconds())))
}

// MarshalJSON gives the members in the order of the type's documentation.
func (p Problem) MarshalJSON() ([]byte, error) {
	members := struct {
		Type       string          `json:"type"`
		Title      string          `json:"title"`
		Status     int             `json:"status"`
		Detail     string          `json:"detail,omitempty"`
		Field      string          `json:"field,omitempty"`
		Acquired   *bool           `json:"acquired,omitempty"`
		Resource   string          `json:"resource,omitempty"`
		RetryAfter int             `json:"retry_after_seconds,omitempty"`
		Holder     json.RawMessage `json:"holder,omitempty"`
		QueueFull  bool            `json:"queue_full,omitempty"`
	}{
		Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Field: p.Field, RetryAfter: p.RetryAfterSeconds,
	}
	if p.Type == TypeHeld {
		holder, err := encode(p.Holder)
		if err != nil {
			return nil, err
		}
		members.Acquired, members.Resource, members.Holder, members.QueueFull = new(bool), p.Resource, holder, p.QueueFull
	}
	return encode(members)
}

// MarshalJSON gives the members in the order of the type's documentation.
func (h Holder) MarshalJSON() ([]byte, error) {
	shared, slots := sharing(h.Slots)
	members := struct {
		Owner      string          `json:"owner,omitempty"`
		Token      int64           `json:"token,omitempty"`
		Shared     bool            `json:"shared,omitempty"`
		Slots      int             `json:"slots,omitempty"`
		AcquiredAt string          `json:"acquired_at"`
		ExpiresAt  string          `json:"expires_at"`
		Metadata   json.RawMessage `json:"metadata,omitempty"`
	}{
		Owner: h.Owner, Token: h.Token, Shared: shared, Slots: slots, AcquiredAt: instant(h.AcquiredAt), ExpiresAt: instant(h.ExpiresAt),
	}
	if h.Owner != "" {
		members.Metadata = metadataOf(h.Metadata)
	}
	return encode(members)
}

// SetHeader sets what belongs to the problem besides status and body: Content-Type, Retry-After, and that nobody
// caches it or guesses its type.
func (p Problem) SetHeader(header http.Header) {
	setCommon(header, ProblemMediaType)
	if p.RetryAfterSeconds > 0 {
		header.Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	}
}

// Write answers the request with the problem; a HEAD gets the same headers and no body.
func (p Problem) Write(w http.ResponseWriter, r *http.Request) error {
	body, err := encode(p)
	if err != nil {
		return err
	}
	p.SetHeader(w.Header())
	return send(w, r, p.Status, body)
}
