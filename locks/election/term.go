package election

import (
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// errLeft stands in reports for what Lead returned, where it panicked or ended its goroutine instead.
var errLeft = errors.New("election: lead did not return, it panicked or exited")

// term is one grant of the leadership, from Lead's start until its lease is freed.
type term struct {
	lease *locks.Lease
	ctx   context.Context //nolint:containedctx // it is the term's own, which Lead is given
	end   context.CancelCauseFunc
	cause error         // why ctx ended before Lead returned; nil when Lead returned by itself
	over  chan struct{} // closed when Lead has returned and the lease is freed, or left to its TTL
}

func newTerm(ctx context.Context, lease *locks.Lease) *term {
	t := &term{lease: lease, over: make(chan struct{})}
	t.ctx, t.end = context.WithCancelCause(ctx)
	return t
}

// lead runs Lead and watches how long it stays.
func (c *Candidate) lead(t *term) error {
	began, returned, err := time.Now(), make(chan struct{}), errLeft
	unwatch := c.watch(t, returned)
	defer func() {
		t.cause = context.Cause(t.ctx)
		if t.cause == nil { // Lead may have seen the loss before its context was told
			t.cause = t.lease.Err()
		}
		if errors.Is(t.cause, locks.ErrReleased) { // by Lead itself, which so has had enough
			t.cause = nil
		}
		t.end(nil) // before anything else, so that nobody is told that this is the leader
		close(returned)
		unwatch()
		c.report(Event{Kind: EventEnded, Grant: t.lease.Grant(), Elapsed: time.Since(began), Cause: t.cause, Err: err})
	}()
	err = c.config.Lead(t.ctx, t.lease)
	return err
}

// watch reports a Lead that stays longer than it may. What it returns waits for the end of a report.
func (c *Candidate) watch(t *term, returned <-chan struct{}) (unwatch func()) {
	watched := make(chan struct{})
	stop := context.AfterFunc(t.ctx, func() {
		defer close(watched)
		limit := time.NewTimer(c.config.StopLimit)
		defer limit.Stop()
		select {
		case <-returned:
		case <-limit.C:
			select {
			case <-returned: // in time, on a machine that was too busy to say so
				return
			default:
			}
			c.report(Event{
				Kind: EventOverstayed, Grant: t.lease.Grant(), Elapsed: c.config.StopLimit, Cause: context.Cause(t.ctx),
			})
		}
	})
	return func() {
		if !stop() {
			<-watched
		}
	}
}
