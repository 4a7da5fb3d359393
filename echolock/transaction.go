package echolock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// The problem types that only [Config.Tx] has.
const (
	// TypeOutcomeUnknown: the commit was sent and its answer is missing. What the handler did may be done or not; a client
	// that comes back with the same key runs it again.
	TypeOutcomeUnknown = lockhttp.TypePrefix + "outcome-unknown"
	// TypeResponseTooLarge: the handler's answer was above [Config.ResponseLimit], and nothing of its work is done.
	TypeResponseTooLarge = lockhttp.TypePrefix + "response-too-large"
)

// checkTx is about the transaction's part of a Config.
func (config *Config) checkTx() error {
	if config.Tx == nil {
		return nil
	}
	switch value := reflect.ValueOf(config.Tx); value.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map:
		if value.IsNil() {
			return setupError("Tx", fmt.Sprintf("must not be a nil %v", value.Type()))
		}
	}
	if config.FailOpen {
		return setupError("FailOpen", "cannot be combined with Tx: without the database there is no transaction to hand over")
	}
	return nil
}

// TxFrom returns the transaction that the middleware opened for this request by [Config.Tx], or nil when there is none.
// Under several middlewares it is the innermost transaction. The store turns it into its handle: bunstore.TxFrom. It is
// for the handler: when that has returned the transaction ends, and then refuses what is asked of it. It is for one
// goroutine at a time; the handler neither commits it nor rolls it back.
func TxFrom(c echo.Context) locks.Tx { return TxFromContext(c.Request().Context()) }

// TxFromContext is [TxFrom] for code that only has the request's context, or one that descends from it.
func TxFromContext(ctx context.Context) locks.Tx {
	for held := holdingOf(ctx); held != nil; held = held.outer {
		if held.tx != nil {
			return held.tx
		}
	}
	return nil
}

// errRefused rolls back what the handler's own answer says was not done.
var errRefused = errors.New("echolock: the handler answered with 400 or above")

// workTx is [run.work] in a transaction, which is committed when it returns nil.
func (r *run) workTx(ctx context.Context, tx locks.Tx, lease *locks.Lease) error {
	if err := r.enter(lease); err != nil {
		return err
	}
	tx.OnEnd(func(outcome locks.Outcome) { r.outcome.Store(int32(outcome)) })
	response := r.c.Response()
	r.answer, r.unanswered = newAnswerBuffer(response.Writer, r.ResponseLimit), *response
	panics := true
	defer func() {
		if panics { // on its way to a rollback
			r.takeBack(internal(""))
		}
	}()
	r.call(ctx, lease, tx, r.answer)
	panics = false
	switch {
	case r.answer.tooBig:
		return ErrResponseTooLarge
	case r.err != nil:
		return r.err
	case r.answer.refused():
		return errRefused
	}
	return nil
}

// finishTx is the answer when the handler has run and its transaction has ended. Nothing has reached the client before.
func (r *run) finishTx(err error) error {
	outcome := locks.Outcome(r.outcome.Load())
	switch {
	case r.answer.tooBig:
		problem := internal("The answer is larger than the server allows here. Nothing was done.")
		problem.Type = TypeResponseTooLarge
		return r.replace(problem, errors.Join(ErrResponseTooLarge, r.err))
	case r.err != nil:
		if r.answer.answered() && !r.answer.refused() {
			r.takeBack(internal(""))
		}
		_ = r.answer.pass()
		return r.err
	case r.answer.refused():
		return r.answer.pass()
	case err == nil || outcome == locks.Committed: // what a store fails in after its commit changes nothing
		return r.answer.pass()
	}
	return r.replace(r.uncommitted(err, outcome), err)
}

// uncommitted is the problem when the handler succeeded and the commit did not.
func (r *run) uncommitted(err error, outcome locks.Outcome) lockhttp.Problem {
	var held *locks.HeldError
	switch {
	case outcome != locks.RolledBack:
		return lockhttp.Problem{
			Type: TypeOutcomeUnknown, Title: "The outcome is unknown", Status: http.StatusServiceUnavailable,
			Detail:            "The database did not say whether the work was committed: it may be done or not.",
			RetryAfterSeconds: 1,
		}
	case errors.Is(err, locks.ErrLost):
		problem := lockhttp.Lost()
		problem.Detail = "The lease on this request was lost while it ran. Nothing was done."
		return problem
	case errors.As(err, &held):
		return lockhttp.Held(held, r.HeldStatus)
	}
	problem := storeProblem(err)
	problem.Detail, problem.RetryAfterSeconds = "The work was not committed: nothing was done. Try again.", 1
	return problem
}

// replace answers with the problem instead of what the handler has written.
func (r *run) replace(problem lockhttp.Problem, cause error) error {
	r.takeBack(problem)
	var held *locks.HeldError
	switch {
	case r.over():
		return setHeader(r.header, ProblemError(problem, cause))
	case problem.Type == lockhttp.TypeHeld && errors.As(cause, &held):
		return setHeader(r.header, r.deny(held, false))
	}
	return r.fail(r.c, r.header, ProblemError(problem, cause))
}

// takeBack makes the response as if the handler had not answered. That can only be done while the echo.Context is ours.
// When it no longer is, and perhaps says that the answer is out, nobody else would give one: the client would see an
// empty 200. So the problem goes straight to the request's own writer, and leads nowhere where a Timeout has answered.
func (r *run) takeBack(problem lockhttp.Problem) {
	answered := r.answer.answered()
	r.answer.drop()
	switch {
	case !answered:
	case r.over():
		_ = problem.Write(r.answer.outside, r.request)
	default:
		response, before := r.c.Response(), &r.unanswered
		response.Committed, response.Status, response.Size = before.Committed, before.Status, before.Size
	}
}

// internal is the problem without a type of its own (RFC 9457, 4.2.1).
func internal(detail string) lockhttp.Problem {
	const status = http.StatusInternalServerError
	return lockhttp.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}
