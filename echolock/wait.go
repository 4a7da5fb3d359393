package echolock

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
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
	// deadline is the connection's: the server's WriteTimeout counts from the end of the wait.
	deadline lockhttp.WriteDeadline
}

// newPatience starts a wait. Its context cannot be one with a deadline, since the work's context will be derived from it
// and shall outlive the wait.
func newPatience(ctx context.Context, limit time.Duration, w http.ResponseWriter) *patience {
	p := &patience{deadline: lockhttp.NewWriteDeadline(ctx, w)}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	limit = p.deadline.Wait(limit)
	p.timer = time.AfterFunc(limit, func() { p.cancel(errWaitOver) })
	return p
}

// end ends the wait and reports whether it ended in time, that is before its limit has cancelled the context.
func (p *patience) end() bool {
	inTime := p.timer.Stop()
	p.deadline.End()
	return inTime
}

// cutOff tells an acquire that was ended by the wait's limit with no more to say than that: not even that the key was held.
func (p *patience) cutOff(err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(context.Cause(p.ctx), errWaitOver) && !errors.Is(err, locks.ErrHeld)
}

// stop frees what the wait has.
func (p *patience) stop() {
	p.timer.Stop()
	p.cancel(nil)
}
