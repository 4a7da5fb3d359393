package election

import (
	"context"
	"errors"
	"sync"

	"github.com/rowlease/rowlease/locks"
)

// ErrResigned is the cause of Lead's context when [Candidate.Resign] ended the term.
var ErrResigned = errors.New("election: resigned")

// Candidate is one who may become leader. It is safe for concurrent use. It has nothing to close: what it does ends with
// the context of its campaign, or with its locker.
type Candidate struct {
	locker   *locks.Locker
	resource string
	config   Config

	mu          sync.Mutex
	campaigning bool
	term        *term // nil while it does not lead
}

// New returns a candidate for the leadership that the resource stands for: candidates of one resource in one store elect one
// leader. Nothing happens before [Candidate.Campaign]. The locker must renew its leases: under [locks.WithoutRenewal] each
// term would end when it is trusted no longer. Errors: [locks.ErrInvalid], for the first bad field of the config.
func New(locker *locks.Locker, resource string, config Config) (*Candidate, error) {
	if locker == nil {
		return nil, &locks.InvalidError{Field: "locker", Reason: "must not be nil"}
	}
	if err := locks.ValidateResource(resource); err != nil {
		return nil, err
	}
	if err := config.settle(); err != nil {
		return nil, err
	}
	return &Candidate{locker: locker, resource: resource, config: config}, nil
}

// IsLeader reports whether Lead runs and its context has not ended. It looks at the clock itself, so that a process that was
// paused is told at once, unless the whole machine slept, whose clock then did, too. The answer is of this instant: what must not be done by two belongs into Lead, under its context.
func (c *Candidate) IsLeader() bool {
	_, leads := c.Term()
	return leads
}

// Term returns the grant of the present term, while [Candidate.IsLeader].
func (c *Candidate) Term() (locks.Grant, bool) {
	t := c.current()
	if t == nil || t.ctx.Err() != nil || t.lease.Err() != nil {
		return locks.Grant{}, false
	}
	return t.lease.Grant(), true
}

// Resign ends the present term in order: Lead's context ends with the cause [ErrResigned], Lead returns, the lease is freed;
// then Resign returns. The campaign goes on, behind those who wait already: where others campaign, one of them leads next,
// where nobody does, this candidate is elected again. To leave, end Campaign's context instead.
//
// A candidate that does not lead has nothing to end, and Resign returns nil at once. It must not be called by Lead or
// Report, which it waits for: Lead returns instead. Errors: ctx's end, when it ended before all that was done; it is done all the same.
func (c *Candidate) Resign(ctx context.Context) error {
	t := c.current()
	if t == nil {
		return nil
	}
	t.end(ErrResigned)
	select {
	case <-t.over: // also under a context that has ended
		return nil
	default:
	}
	select {
	case <-t.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Candidate) current() *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

func (c *Candidate) setTerm(t *term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = t
}
