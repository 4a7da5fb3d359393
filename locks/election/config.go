package election

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// MinTTL is the shortest TTL of a term.
const MinTTL = time.Second

// maxNameBytes leaves room for the slash and the random part.
const maxNameBytes = locks.MaxOwnerBytes - 27

// Config configures a [Candidate].
type Config struct {
	// Lead does the leader's work for one term, on the goroutine of [Candidate.Campaign]. Its context has the values of
	// Campaign's and ends with the term; [context.Cause] then tells why: [ErrResigned], a [*locks.LostError],
	// [locks.ErrClosed], [locks.ErrMaxHold], or the cause of Campaign's context. From then on Lead has StopLimit to return,
	// with all that it has started. A Lead that returns while it leads ends the term and the campaign. Lead must not
	// release the term: that is done when it has returned; one that does has had enough, too. Required.
	Lead func(ctx context.Context, term *locks.Lease) error

	// StopLimit is how long Lead may take to return when its context has ended: from 1 ms to half of the TTL. Default: a
	// sixth of the TTL, 5 s of 30 s. The longer it is, the sooner a leader must give up whom the store does not answer:
	// StopLimit and a tenth of the TTL before its lease ends.
	StopLimit time.Duration

	// TTL is how long others wait for a leader that was killed: from 1 s to 24 h. Default: 30 s, whatever the locker's own
	// TTL is. The renewal interval and the margin follow from it and from StopLimit, whatever the locker's are: a term is
	// renewed three times in the time for which it is trusted (the TTL less StopLimit and a tenth), and outlives a store
	// whose calls fail for half of that, or hang for a quarter.
	TTL time.Duration

	// Name is for those who look: the owner of a term is this name, a slash and a part that is random for each term, so that
	// candidates of the same name exclude each other, too. At most 228 bytes, with the rules of an owner. Default: the random
	// part alone.
	Name string

	// Metadata is one JSON object of at most 4 KiB that is kept with each term, such as the leader's address. Default: none.
	Metadata json.RawMessage

	// Report is told what happens, see [Event]. It must be safe for concurrent use, and must neither block nor call
	// [Candidate.Resign]: the end of a term waits for it. A panic of it is swallowed. Default: nobody is told.
	Report func(Event)
}

// settle puts in the defaults and checks how the parts fit.
func (c *Config) settle() error {
	if c.Lead == nil {
		return &locks.InvalidError{Field: "lead", Reason: "must not be nil"}
	}
	if c.TTL == 0 {
		c.TTL = locks.DefaultTTL
	}
	if c.TTL < MinTTL || c.TTL > locks.MaxTTL {
		return &locks.InvalidError{Field: "ttl", Reason: fmt.Sprintf("must be from %v to %v, got %v", MinTTL, locks.MaxTTL, c.TTL)}
	}
	if c.StopLimit == 0 {
		c.StopLimit = c.TTL / 6
	}
	if c.StopLimit < time.Millisecond || c.StopLimit > c.TTL/2 {
		return &locks.InvalidError{Field: "stop limit", Reason: fmt.Sprintf(
			"must be from %v to half of the TTL (%v), got %v", time.Millisecond, c.TTL, c.StopLimit,
		)}
	}
	if err := locks.ValidateOwner(c.owner()); err != nil {
		return &locks.InvalidError{Field: "name", Reason: fmt.Sprintf("must be at most %d bytes of valid UTF-8 without control characters", maxNameBytes)}
	}
	c.Metadata = bytes.Clone(c.Metadata) // the caller's may change
	return locks.ValidateMetadata(c.Metadata)
}

// owner returns the owner of one term. Each has its own: where it was the candidate's, a request for an earlier term that was
// given up and is carried out late would take the present one over.
func (c *Config) owner() string {
	if c.Name == "" {
		return rand.Text()
	}
	return c.Name + "/" + rand.Text()
}

// lease returns how a term's lease is kept. Nothing here is left to the locker's defaults, since its margin knows nothing of
// the stop limit.
func (c *Config) lease() []locks.AcquireOption {
	margin := c.StopLimit + c.TTL/10
	return []locks.AcquireOption{
		locks.WithOwner(c.owner()), locks.WithMetadata(c.Metadata),
		locks.WithTTL(c.TTL), locks.WithMargin(margin), locks.WithRenewalInterval((c.TTL - margin) / 3),
	}
}
