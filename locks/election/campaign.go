package election

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Least and longest pause after a fault; an acquire has outlived some seconds of it by then.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
)

// Campaign waits in the resource's queue until the candidate is elected, runs Lead, frees the lease when Lead has returned,
// never before, and waits for the next term, until ctx ends. It goes on after terms that were lost, resigned
// ([Candidate.Resign]) or held for their longest time ([locks.WithMaxHold]), and after faults, which Report is told of
// ([EventFailed]). It returns when no Lead of it runs and the lease is freed, or left to its TTL where the store did not
// answer; what the store grants to a campaign that has just ended is freed in the background, without a Lead. A panic of
// Lead passes through Campaign, and frees the lease on its way.
//
// Errors: Lead's, or nil, when Lead returned while it led: there is then nothing left to do, or it cannot be done here;
// joined with [locks.ErrLost] when the lease was ended by somebody else before it was freed. ctx's end. [locks.ErrClosed] when
// the locker closes. [locks.ErrInvalid] when the candidate campaigns already.
func (c *Candidate) Campaign(ctx context.Context) error {
	if !c.enter() {
		return &locks.InvalidError{Field: "campaign", Reason: "is running already"}
	}
	defer c.leave()
	pauses := newPauses(minPause, maxPause)
	for {
		t, err := c.serve(ctx)
		switch {
		case t != nil && t.cause == nil: // Lead had enough
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case t != nil:
			pauses = newPauses(minPause, maxPause)
		case errors.Is(err, locks.ErrClosed), errors.Is(err, locks.ErrInvalid):
			return err
		default:
			c.report(Event{Kind: EventFailed, Err: err})
			if !sleep(ctx, pauses.next()) {
				return ctx.Err()
			}
		}
	}
}

func (c *Candidate) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	entered := !c.campaigning
	c.campaigning = true
	return entered
}

func (c *Candidate) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.campaigning = false
}

// serve waits for one term and leads it. The term is nil when there was none.
func (c *Candidate) serve(ctx context.Context) (t *term, err error) {
	began := time.Now()
	defer func() { // deferred, since a panic of Lead ends the term, too
		if t != nil {
			c.setTerm(nil)
			close(t.over)
		}
	}()
	err = c.locker.Do(ctx, c.resource, func(ctx context.Context, lease *locks.Lease) error {
		// The process may have slept since the grant, and the campaign or the locker may have ended: there is no term then.
		if err := cmp.Or(lease.Err(), context.Cause(ctx)); err != nil {
			return err
		}
		t = newTerm(ctx, lease)
		c.setTerm(t)
		c.report(Event{Kind: EventElected, Grant: lease.Grant(), Elapsed: time.Since(began)})
		return c.lead(t)
	}, c.config.lease()...)
	return t, err
}
