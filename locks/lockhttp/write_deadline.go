package lockhttp

import (
	"context"
	"net/http"
	"time"
)

// WriteDeadline is the write deadline of a request that waits before it is answered: what is written later than the server's
// WriteTimeout is lost. The API uses it; it is for middleware too. The zero value, and that of a request whose server has no
// WriteTimeout, does nothing.
type WriteDeadline struct {
	controller *http.ResponseController
	allowance  time.Duration // the server's WriteTimeout, 0 when it has none
}

// NewWriteDeadline returns the deadline of the request that has this context.
func NewWriteDeadline(ctx context.Context, w http.ResponseWriter) WriteDeadline {
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.WriteTimeout <= 0 {
		return WriteDeadline{}
	}
	return WriteDeadline{http.NewResponseController(w), server.WriteTimeout}
}

// Wait makes room for a wait that begins now: the WriteTimeout counts from its end. It returns how long the wait may be,
// that is limit or, under a writer that cannot move its deadline, half of the WriteTimeout if that is less, since a longer
// wait would be for an answer that cannot arrive. Call it before the WriteTimeout has passed: HTTP/2 resets the stream at
// once.
func (d WriteDeadline) Wait(limit time.Duration) time.Duration {
	if d.allowance > 0 && !d.move(limit) {
		return min(limit, d.allowance/2)
	}
	return limit
}

// End gives the WriteTimeout anew from now on, at the end of a wait.
func (d WriteDeadline) End() {
	if d.allowance > 0 {
		d.move(0)
	}
}

// move leaves the read deadline alone: net/http lifts it when the body has been read, and a new one would end the request's
// context.
func (d WriteDeadline) move(ahead time.Duration) bool {
	return d.controller.SetWriteDeadline(time.Now().Add(ahead+d.allowance)) == nil
}
