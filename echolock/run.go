package echolock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// run is one request under the guard. It lives in the request's goroutine.
type run struct {
	*guard
	c                    echo.Context
	next                 echo.HandlerFunc
	key, resource, owner string

	// request and header are the request's own. When a Timeout middleware before us has answered, echo may have given the
	// echo.Context to another request by the time that the wait or the handler ends; these two stay ours.
	request *http.Request
	header  http.Header

	began    time.Time
	patience *patience // nil without a wait
	lease    *locks.Lease
	tellLost func(error)
	writer   guardedWriter
	err      error // the handler's

	// Only with Config.Tx: see transaction.go.
	answer     *answerBuffer
	unanswered echo.Response // as it was before the handler
	outcome    atomic.Int32  // a locks.Outcome
}

// do takes the lease, runs the handler and frees the lease, all in [locks.Locker.Do] or [locks.Locker.DoTx].
func (r *run) do() error {
	r.request, r.header, r.began = r.c.Request(), r.c.Response().Header(), time.Now()
	options := r.leaseOptions(make([]locks.AcquireOption, 0, 3))
	if r.owner != "" {
		options = append(options, locks.WithOwner(r.owner))
	}
	var err error
	if r.WaitTimeout == 0 {
		err = r.take(r.request.Context(), false, options)
	} else {
		err = r.wait(options)
	}
	if r.lease == nil {
		return r.refuse(err)
	}
	return r.finish(err)
}

// wait is do with a wait. A wait that ended while the store was being asked knows neither that the key is held nor that
// the store fails: it takes a last look, which has an end of its own, and by which it overtakes nobody who waits.
func (r *run) wait(options []locks.AcquireOption) error {
	ctx, writer := r.request.Context(), r.c.Response().Writer
	r.patience = newPatience(ctx, r.WaitTimeout, writer)
	defer func() { r.patience.stop() }()
	err := r.take(r.patience.ctx, true, options)
	switch {
	case r.lease != nil:
		return err
	case r.patience.cutOff(err):
		r.patience.stop()
		r.patience = newPatience(ctx, lastLook, writer)
		return r.take(r.patience.ctx, false, options)
	case errors.Is(err, locks.ErrHeld):
		return r.heldNow(err)
	}
	return err
}

// heldNow is the answer "held" with what is true of the holder now: a waiter was refused when it came, perhaps long ago.
func (r *run) heldNow(err error) error {
	held := locks.Held(r.resource, nil)
	if !errors.Is(r.request.Context().Err(), context.Canceled) { // a host's deadline leaves somebody to answer
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.request.Context()), lastLook)
		defer cancel()
		if holder, err := r.Locker.Get(ctx, r.resource); err == nil {
			held = locks.Held(r.resource, &holder)
		}
	}
	if errors.Is(err, locks.ErrQueueFull) {
		return fmt.Errorf("%w: %w", locks.ErrQueueFull, held)
	}
	return held
}

// take is one call of the locker's.
func (r *run) take(ctx context.Context, wait bool, options []locks.AcquireOption) error {
	switch {
	case r.Tx != nil && wait:
		return r.Locker.DoTx(ctx, r.Tx, r.resource, r.workTx, options...)
	case r.Tx != nil:
		return r.Locker.TryDoTx(ctx, r.Tx, r.resource, r.workTx, options...)
	case wait:
		return r.Locker.Do(ctx, r.resource, r.work, options...)
	}
	return r.Locker.TryDo(ctx, r.resource, r.work, options...)
}

// work runs the handler under the lease; the context is the work's.
func (r *run) work(ctx context.Context, lease *locks.Lease) error {
	if err := r.enter(lease); err != nil {
		return err
	}
	r.writer.ResponseWriter = r.c.Response().Writer
	r.call(ctx, lease, nil, &r.writer)
	return nil
}

// enter accepts the lease, unless that comes too late.
func (r *run) enter(lease *locks.Lease) error {
	if r.patience != nil && !r.patience.end() {
		return errWaitOver
	}
	if err := r.request.Context().Err(); err != nil { // nobody waits for the answer any more
		return err
	}
	r.lease = lease
	if r.ExposeHeaders {
		expose(r.header, r.key, lease.Token(), time.Since(r.began))
	}
	return nil
}

// call runs the handler with this response writer, which has the request's own underneath.
func (r *run) call(ctx context.Context, lease *locks.Lease, tx locks.Tx, writer http.ResponseWriter) {
	if r.OnLost != nil {
		tell := r.onLost(lease)
		r.tellLost = tell
		stop := context.AfterFunc(lease.Context(), func() { tell(lease.Err()) })
		defer stop()
	}
	held := &holding{lease: lease, locker: r.Locker, tx: tx, outer: holdingOf(ctx)}
	request := r.request.WithContext(context.WithValue(ctx, holdingKey{}, held))
	response := r.c.Response()
	outside := response.Writer
	response.Writer = writer
	r.c.SetRequest(request)
	r.c.Set(r.ContextKey, lease)
	defer r.putBack(request, writer, outside)
	r.err = r.handle(lease)
}

func (r *run) handle(lease *locks.Lease) error {
	if r.OnAcquired != nil {
		if err := r.OnAcquired(r.c, lease); err != nil {
			return setHeader(r.header, err)
		}
		if err := r.request.Context().Err(); err != nil {
			return err
		}
		if r.c.Response().Committed {
			return nil
		}
	}
	return r.next(r.c)
}

// putBack gives the echo.Context its old request and writer again, since the work's context ends now. Where the request is
// over that would gain nothing, and the echo.Context may be another request's by now.
func (r *run) putBack(work *http.Request, inside, outside http.ResponseWriter) {
	// What the handler has parsed belongs to the request: the server deletes the files of a multipart form.
	if r.request.MultipartForm == nil {
		r.request.MultipartForm = work.MultipartForm
	}
	if r.request.Form == nil {
		r.request.Form, r.request.PostForm = work.Form, work.PostForm
	}
	if r.over() {
		return
	}
	r.c.SetRequest(r.request)
	if response := r.c.Response(); response.Writer == inside { // else it is one that the handler left behind
		response.Writer = outside
	}
}

// over tells a request whose context has ended. Its echo.Context is no longer ours, nor the host's: under a Timeout
// middleware before us echo may have given it to another request.
func (r *run) over() bool { return r.request.Context().Err() != nil }

// finish is the answer when the handler has run. Its error is returned as it is, with a lease that was lost, too.
func (r *run) finish(err error) error {
	lostIt := errors.Is(err, locks.ErrLost)
	if lostIt && r.tellLost != nil { // perhaps only the release has found out
		go r.tellLost(err)
	}
	switch {
	case r.answer != nil:
		return r.finishTx(err)
	case r.err != nil || !lostIt:
		return r.err
	case r.writer.hijacked.Load(): // the connection is no longer the server's
		return nil
	case r.over():
		return setHeader(r.header, lost(err))
	case r.c.Response().Committed: // the client has its answer
		return nil
	}
	return r.fail(r.c, r.header, lost(err))
}

// refuse is the answer when the handler has not run.
func (r *run) refuse(err error) error {
	if r.patience != nil {
		r.patience.end()
	}
	if r.ExposeHeaders {
		expose(r.header, r.key, 0, time.Since(r.began))
	}
	var other *locks.SlotsError
	if errors.As(err, &other) { // the host has a share of the key under the request's own name: no fault, and nobody to wait for
		problem := ProblemError(lockhttp.ProblemOf(other, lockhttp.ActionAcquire), other)
		if r.over() {
			return setHeader(r.header, problem)
		}
		return r.fail(r.c, r.header, problem)
	}
	var held *locks.HeldError
	if errors.Is(err, errWaitOver) { // granted too late, and given back
		held = locks.Held(r.resource, nil)
	}
	if held != nil || errors.As(err, &held) {
		return setHeader(r.header, r.deny(held, errors.Is(err, locks.ErrQueueFull)))
	}
	if r.over() {
		return setHeader(r.header, unavailable(err))
	}
	if r.FailOpen && !errors.Is(err, locks.ErrClosed) && !errors.Is(err, locks.ErrInvalid) {
		r.c.Logger().Errorf("echolock: request runs without a lease: resource %q: %v", r.resource, err)
		return r.next(r.c)
	}
	return r.fail(r.c, r.header, unavailable(err))
}

func (r *run) deny(held *locks.HeldError, full bool) error {
	if r.DenyHandler != nil && !r.over() {
		return r.DenyHandler(r.c, held)
	}
	// The cause is not all of the acquire's error: a deadline in it would make echo's ContextTimeout answer 503.
	if full {
		return ProblemError(lockhttp.HeldQueueFull(held, r.HeldStatus), fmt.Errorf("%w: %w", locks.ErrQueueFull, held))
	}
	return ProblemError(lockhttp.Held(held, r.HeldStatus), held)
}

// onLost returns a function that tells the host, once, of a lease that is lost.
func (r *run) onLost(lease *locks.Lease) func(error) {
	var told atomic.Bool
	tell, logger := r.OnLost, r.c.Logger() // no echo.Context beyond this goroutine
	return func(err error) {
		if !errors.Is(err, locks.ErrLost) || !told.CompareAndSwap(false, true) {
			return
		}
		defer func() {
			if p := recover(); p != nil {
				logger.Errorf("echolock: OnLost panicked: %v\n%s", p, debug.Stack())
			}
		}()
		tell(lease, err)
	}
}
