package lockhttp

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// attemptHeader carries the attempt of an acquire.
const attemptHeader = "Idempotency-Key"

var acquireShape = shape{"owner": aString, "ttl_seconds": anInteger, "metadata": anObject, "shared": aBoolean, "slots": anInteger}

// Acquire answers POST /locks/{resource}. The body is {"owner":"w1","ttl_seconds":30,"metadata":{…}}; owner is required.
// It is one try, at once, or waits if the request asks for it, by the header Prefer: wait=30 (RFC 7240, whole seconds) or by
// ?wait=30s (a number of seconds, or a duration as Go writes it: 1m30s, 500ms), up to [Config.MaxWait].
//
//   - Granted: 200 {"acquired":true,"lock":{id,resource,owner,token,acquired_at,expires_at,ttl_seconds,metadata}}, also
//     for the holder's own name, as a new grant in place with a larger token. ttl_seconds is the time left, rounded up.
//   - Another owner holds it: [Config.HeldStatus], Retry-After, and
//     {"acquired":false,"resource":…,"retry_after_seconds":…,"holder":{acquired_at,expires_at}}; holder is null, and
//     Retry-After 1, when another transaction is just changing the lease, or others wait for it and it is their turn.
//   - It is shared in another way, or the owner holds it itself in another way: 409, at once, whatever the wait.
//
// With "shared":true it is one of any number of holders, as readers are, and with "slots":n, 1 to 10,000, one of at most n, see
// [locks.Sharer]; one of the two at most, and on a store that has shares: else 422. Every lock that is shared says so in the
// same words, and no other has these members.
//
// Those who wait are served in the order in which they came, where the store is a [locks.Queuer], and beside all others who
// wait for the resource, in Go or over HTTP. The TTL begins with the grant. A wait that ends without it is answered as held.
// An answer to a Prefer that is honoured says Preference-Applied: wait=N, N being the seconds that it was taken for. As RFC 7240
// has it, a preference that is unknown or no whole number of seconds is ignored, and not refused. A wait in the query that
// cannot be read, or is not the preferred one, is 400; one that is negative or above 24 h is 422. Where as many wait as may
// ([Config.MaxWaiters]) it is answered at once, as held, with "queue_full":true. A wait ends up to [Config.CallLimit] later where
// the store was just being asked, and with 503 when the API closes. The server's WriteTimeout counts from its end, see
// [WriteDeadline]. The client's going ends it, and gives its place up; it is noticed by net/http's own means, in HTTP/1 not for a
// client that has sent its next request ahead.
//
// The header Idempotency-Key is the attempt: the same request sent again finds the same grant, unchanged. It is taken as
// it is written, and has the rules of an owner: else 422, and 400 when it is given more than once. Without it, a grant
// whose answer cannot be delivered (the client has gone, the store's answer was lost) is given back in the background,
// for some seconds: when the store is out of reach for longer, the lease lasts until its end. An answer that the client's
// system took and lost is beyond that: only the attempt helps there, or the lease's end.
func (a *API) Acquire(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionAcquire, resource, func() error { return a.acquire(w, r, resource) })
}

func (a *API) acquire(w http.ResponseWriter, r *http.Request, resource string) error {
	if err := a.admit(r, ActionAcquire, resource); err != nil {
		return err
	}
	asked, err := a.readAcquire(r, resource)
	if err != nil {
		return err
	}
	if a.background.isClosed() {
		return shuttingDown(locks.ErrClosed)
	}
	if err := r.Context().Err(); err != nil {
		return err
	}
	c := &claim{api: a, r: r, request: asked.request, named: asked.named}
	var lock locks.Lock
	if asked.wait > 0 {
		a.background.begin() // so that a Close that ends the wait also waits for what it leaves to do
		defer a.background.done()
		lock, err = a.waitFor(w, r, asked, c)
	} else {
		if asked.preferred {
			w.Header().Set(appliedHeader, "wait=0")
		}
		lock, err = c.try(r.Context())
	}
	granted := err == nil
	if granted && !asked.named {
		err = r.Context().Err() // nobody is there to take the answer
	}
	if err == nil {
		return a.grant(w, r, lock, c)
	}
	c.drop(granted)
	var holder *locks.HeldError
	switch full := errors.Is(err, locks.ErrQueueFull); {
	case errors.As(err, &holder):
		return a.refuseHeld(w, r, resource, holder, full)
	case errors.Is(err, locks.ErrHeld):
		return a.refuseHeld(w, r, resource, locks.Held(resource, nil), full)
	}
	return err
}

// grant tells the client of its lease. An attempt that the client named is not given back: its retry must find it.
func (a *API) grant(w http.ResponseWriter, r *http.Request, lock locks.Lock, c *claim) error {
	value := grantedAnswer{true, complete(lock)}
	if c.named {
		return a.deliver(w, r, value)
	}
	if err := answerAtOnce(w, r, http.StatusOK, value); err != nil {
		c.giveBack(true)
	}
	return nil
}

// acquisition is what a request to acquire asks for.
type acquisition struct {
	request   locks.Request
	named     bool          // the client named the attempt
	wait      time.Duration // 0 for one try
	preferred bool          // by the header Prefer
}

func (a *API) readAcquire(r *http.Request, resource string) (acquisition, error) {
	fail := func(err error) (acquisition, error) { return acquisition{}, err }
	query, err := readQuery(r, "owner", "wait")
	if err != nil {
		return fail(err)
	}
	attempt, named, err := attemptOf(r)
	if err != nil {
		return fail(err)
	}
	wait, preferred, err := a.readWait(r.Header, query)
	if err != nil {
		return fail(err)
	}
	body, err := readBody(r, acquireShape, false)
	if err != nil {
		return fail(err)
	}
	owner, given, err := query.merged("owner", body)
	if err != nil {
		return fail(err)
	}
	request := locks.Request{Resource: resource, Attempt: attempt, Metadata: body["metadata"].raw}
	if request.Owner, err = ownerFrom(owner, given); err != nil {
		return fail(err)
	}
	if request.TTL, err = a.ttlFrom(body); err != nil {
		return fail(err)
	}
	if request.Slots, err = a.slotsFrom(body); err != nil {
		return fail(err)
	}
	if err := request.Validate(); err != nil {
		return fail(err)
	}
	return acquisition{request, named, wait, preferred}, nil
}

// attemptOf returns the attempt that the client named, or one of its own for this request alone.
func attemptOf(r *http.Request) (attempt string, named bool, err error) {
	switch keys := r.Header.Values(attemptHeader); len(keys) {
	case 0:
		return rand.Text(), false, nil
	case 1:
		return keys[0], true, nil
	default:
		return "", false, refuse(malformed, attemptHeader, attemptHeader+" must be given once.")
	}
}

type grantedAnswer struct {
	Acquired bool   `json:"acquired"`
	Lock     record `json:"lock"`
}

func (a *API) refuseHeld(w http.ResponseWriter, r *http.Request, resource string, err *locks.HeldError, full bool) error {
	p := heldProblem(err, a.heldStatus, a.showHolders)
	p.Resource = resource
	if full {
		p = p.withQueueFull()
	}
	if p.Status != http.StatusOK {
		return p.Write(w, r)
	}
	w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	return answer(w, r, p.Status, struct {
		Acquired   bool    `json:"acquired"`
		Resource   string  `json:"resource"`
		RetryAfter int     `json:"retry_after_seconds"`
		Holder     *Holder `json:"holder"`
		QueueFull  bool    `json:"queue_full,omitempty"`
	}{false, resource, p.RetryAfterSeconds, p.Holder, p.QueueFull})
}

// mayBeGranted tells whether an acquire that ended like this may have been granted all the same.
func mayBeGranted(err error) bool {
	return err == nil || reasonOf(err) == unavailable && !errors.Is(err, locks.ErrClosed)
}
