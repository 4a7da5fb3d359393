package echolock

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// lastLook is how long after the end of a wait the store may take to say whether the key is still held.
const lastLook = time.Second

// errWaitOver is the cause of an acquire's context that ended by WaitTimeout.
var errWaitOver = errors.New("echolock: waited long enough")

// patience is a request's wait for its lease.
type patience struct {
	ctx    context.Context //nolint:containedctx // it is one request's, and lives as long as its wait
	cancel context.CancelCauseFunc
	timer  *time.Timer
	// deadlines are the connection's, and allowance is the server's WriteTimeout; nil and 0 when it has none.
	deadlines *http.ResponseController
	allowance time.Duration
}

// newPatience starts a wait. Its context cannot be one with a deadline, since the work's context will be derived from it
// and shall outlive the wait.
func newPatience(ctx context.Context, limit time.Duration, w http.ResponseWriter) *patience {
	p := &patience{}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server != nil && server.WriteTimeout > 0 {
		p.deadlines, p.allowance = http.NewResponseController(w), server.WriteTimeout
		// Before it passes: HTTP/2 resets the stream at once. Where it stays, a longer wait would be for an answer that
		// cannot arrive.
		if !p.moveDeadline(limit) {
			limit = min(limit, p.allowance/2)
		}
	}
	p.timer = time.AfterFunc(limit, func() { p.cancel(errWaitOver) })
	return p
}

// end ends the wait and reports whether it ended in time, that is before its limit has cancelled the context.
func (p *patience) end() bool {
	inTime := p.timer.Stop()
	p.moveDeadline(0)
	return inTime
}

// cutOff tells an acquire that was ended by the wait's limit with no more to say than that.
func (p *patience) cutOff(err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(context.Cause(p.ctx), errWaitOver) && !errors.Is(err, locks.ErrHeld)
}

// stop frees what the wait has.
func (p *patience) stop() {
	p.timer.Stop()
	p.cancel(nil)
}

// moveDeadline gives the server's WriteTimeout anew from the instant that lies so far ahead, since an answer after the
// deadline is lost, and reports whether the writer can do that. The read deadline is let alone: net/http lifts it when the
// body has been read, and a new one would end the request's context.
func (p *patience) moveDeadline(ahead time.Duration) bool {
	return p.deadlines == nil || p.deadlines.SetWriteDeadline(time.Now().Add(ahead+p.allowance)) == nil
}
