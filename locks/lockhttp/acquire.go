package lockhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// attemptHeader carries the attempt of an acquire.
const attemptHeader = "Idempotency-Key"

var acquireShape = shape{"owner": aString, "ttl_seconds": anInteger, "metadata": anObject}

// Acquire answers POST /locks/{resource}. The body is {"owner":"w1","ttl_seconds":30,"metadata":{…}}; owner is required.
// It is one try, at once.
//
//   - Granted: 200 {"acquired":true,"lock":{id,resource,owner,token,acquired_at,expires_at,ttl_seconds,metadata}}, also
//     for the holder's own name, as a new grant in place with a larger token. ttl_seconds is the time left, rounded up.
//   - Another owner holds it: [Config.HeldStatus], Retry-After, and
//     {"acquired":false,"resource":…,"retry_after_seconds":…,"holder":{acquired_at,expires_at}}; holder is null, and
//     Retry-After 1, when another transaction is just changing the lease.
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
	request, named, err := a.readAcquire(r, resource)
	if err != nil {
		return err
	}
	if a.background.isClosed() {
		return &refusalError{reason: unavailable, detail: "The server is shutting down.", cause: locks.ErrClosed}
	}
	if err := r.Context().Err(); err != nil {
		return err
	}
	lock, err := call.Do(r.Context(), a.limit, func(ctx context.Context) (locks.Lock, error) {
		return a.store.Acquire(ctx, request)
	}, func(_ locks.Lock, err error) { // after the answer below
		if !named && mayBeGranted(err) {
			a.giveBack(r, request, err == nil)
		}
	})
	granted := err == nil
	if err == nil && !named {
		err = r.Context().Err() // nobody is there to take the answer
	}
	var busyHolder *locks.HeldError
	switch {
	case err == nil:
		return a.grant(w, r, lock, request, named)
	case errors.As(err, &busyHolder):
		return a.refuseHeld(w, r, resource, busyHolder)
	case errors.Is(err, locks.ErrHeld):
		return a.refuseHeld(w, r, resource, locks.Held(resource, nil))
	}
	if !named && mayBeGranted(err) {
		a.giveBack(r, request, granted)
	}
	return err
}

// grant tells the client of its lease. An attempt that the client named is not given back: its retry must find it.
func (a *API) grant(w http.ResponseWriter, r *http.Request, lock locks.Lock, request locks.Request, named bool) error {
	value := grantedAnswer{true, complete(lock)}
	if named {
		return a.deliver(w, r, value)
	}
	if err := answerAtOnce(w, r, http.StatusOK, value); err != nil {
		a.giveBack(r, request, true)
	}
	return nil
}

func (a *API) readAcquire(r *http.Request, resource string) (request locks.Request, named bool, err error) {
	fail := func(err error) (locks.Request, bool, error) { return locks.Request{}, false, err }
	query, err := readQuery(r, "owner")
	if err != nil {
		return fail(err)
	}
	attempt, named, err := attemptOf(r)
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
	request = locks.Request{Resource: resource, Attempt: attempt, Metadata: body["metadata"].raw}
	if request.Owner, err = ownerFrom(owner, given); err != nil {
		return fail(err)
	}
	if request.TTL, err = a.ttlFrom(body); err != nil {
		return fail(err)
	}
	if err := request.Validate(); err != nil {
		return fail(err)
	}
	return request, named, nil
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

func (a *API) refuseHeld(w http.ResponseWriter, r *http.Request, resource string, err *locks.HeldError) error {
	p := heldProblem(err, a.heldStatus, a.showHolders)
	p.Resource = resource
	if p.Status != http.StatusOK {
		return p.Write(w, r)
	}
	w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	return answer(w, r, p.Status, struct {
		Acquired   bool    `json:"acquired"`
		Resource   string  `json:"resource"`
		RetryAfter int     `json:"retry_after_seconds"`
		Holder     *Holder `json:"holder"`
	}{false, resource, p.RetryAfterSeconds, p.Holder})
}

// mayBeGranted tells whether an acquire that ended like this may have been granted all the same.
func mayBeGranted(err error) bool {
	return err == nil || reasonOf(err) == unavailable && !errors.Is(err, locks.ErrClosed)
}
