package election

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// EventKind is what an [Event] tells of.
type EventKind int

// The kinds of events.
const (
	// EventElected: a term begins, Lead is about to run. Elapsed is how long the candidate waited for it.
	EventElected EventKind = iota + 1
	// EventEnded: Lead has returned, or panicked; the lease is freed next. Elapsed is how long it ran, Err what it returned.
	EventEnded
	// EventOverstayed: Lead still runs though its context ended StopLimit ago. This is a fault of Lead: where the term was
	// lost, somebody else may lead a tenth of the TTL later, or does already. Elapsed is the stop limit.
	EventOverstayed
	// EventFailed: the campaign met a fault and will try again. Err is the fault.
	EventFailed
)

var eventNames = [...]string{
	EventElected: "elected", EventEnded: "ended", EventOverstayed: "overstayed", EventFailed: "failed",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if k < EventElected || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return eventNames[k]
}

// Event is something that happened to a candidate. What happens to the leases of its terms is told by the locker's own
// observers, see [locks.WithObserver].
type Event struct {
	Kind EventKind
	// Grant is the term's, zero for EventFailed.
	Grant locks.Grant
	// Elapsed is a time on the application's monotonic clock.
	Elapsed time.Duration
	// Cause is why Lead's context ended, nil where Lead returned, or failed, by itself.
	Cause error
	// Err is nil where all went well.
	Err error
}

// report tells the host, and outlives its panic: a broken log must not end a term.
func (c *Candidate) report(event Event) {
	if c.config.Report == nil {
		return
	}
	defer func() { _ = recover() }()
	c.config.Report(event)
}
