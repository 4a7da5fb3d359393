package echolock

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// ProblemError returns the problem as an error for echo: fresh and bare, since echo's error handler knows no wrapped
// ones; its Message is the [lockhttp.Problem], and cause is what [errors.Is] finds. It is for the functions of a [Config]:
// when one of them returns it the middleware sets the answer's headers, Retry-After among them, so that echo's own error
// handler sends it as application/problem+json.
func ProblemError(problem lockhttp.Problem, cause error) *echo.HTTPError {
	return &echo.HTTPError{Code: problem.Status, Message: problem, Internal: cause}
}

// setHeader sets the headers that belong to an error of ours, and returns the error.
func setHeader(header http.Header, err error) error {
	if answer, ok := err.(*echo.HTTPError); ok { //nolint:errorlint // echo's error handler looks no deeper either
		if problem, ok := answer.Message.(lockhttp.Problem); ok {
			problem.SetHeader(header)
		}
	}
	return err
}

// fail is the answer for what is refused and not held: the host's handler may turn it into another.
func (g *guard) fail(c echo.Context, header http.Header, err error) error {
	if g.ErrorHandler != nil {
		err = g.ErrorHandler(c, err)
	}
	return setHeader(header, err)
}

func malformed(field, detail string, cause error) error {
	return ProblemError(lockhttp.Malformed(field, detail), cause)
}

func tooLarge(limit int64) error {
	return ProblemError(lockhttp.TooLarge(fmt.Sprintf("The body must be at most %d bytes.", limit)), nil)
}

func lost(cause error) error { return ProblemError(lockhttp.Lost(), cause) }

var errNoLease = errors.New("echolock: no lease")

// unavailable is for a store that did not say what is the case, whatever it said instead.
func unavailable(cause error) error { return ProblemError(storeProblem(cause), cause) }

func storeProblem(cause error) lockhttp.Problem {
	known := errNoLease
	if errors.Is(cause, locks.ErrRetryable) {
		known = locks.ErrBusy
	}
	return lockhttp.ProblemOf(known, lockhttp.ActionAcquire)
}
