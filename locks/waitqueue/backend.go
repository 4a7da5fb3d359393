package waitqueue

import (
	"context"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Backend is the rows of a queue. Each method is one atomic step on the store's clock, safe for concurrent use, and
// bounded by its context where the engine can be. A ticket is live until its time ends: a later one is granted past it.
// The store itself looks at the tickets when it acquires, and takes the one that it grants out of the queue.
type Backend interface {
	// Enqueue draws a ticket for the request's attempt, with a larger number than all that the resource's queue has ever
	// shown, also to those who look at the same time: the order of numbers is the order in which tickets can be seen.
	// An attempt with a live ticket keeps it, with the time that it has left. Where most is above 0 and so many others
	// wait before it, it leaves no ticket behind and returns [locks.ErrQueueFull]. The channel is where the process hears
	// that it is the ticket's turn, "" for nowhere.
	Enqueue(ctx context.Context, request locks.Request, ttl time.Duration, channel string, most int) (locks.Waiter, error)

	// Dequeue takes the attempt's ticket out of the queue, if it is there. Where that makes it the turn of another one,
	// since the resource is free, or shared by those whom it may join, it announces that, and returns its number if this
	// process may wait for it, else 0.
	Dequeue(ctx context.Context, resource, owner, attempt string) (next int64, err error)

	// Keep gives the live ones of the tickets the whole ttl again, and the channel, and returns which these are.
	Keep(ctx context.Context, tickets []int64, ttl time.Duration, channel string) (kept []int64, err error)

	// Look tells for each ticket how it stands. One that is not live is left out.
	Look(ctx context.Context, tickets []Ticket) ([]Sight, error)
}

// Announcer is a backend that can send to the channels which a [locks.Waker] hears. A front with a waker needs one.
type Announcer interface {
	// Announce sends the payload to everybody who listens on the channel.
	Announce(ctx context.Context, channel, payload string) error
}

// Ticket is what a backend looks at.
type Ticket struct {
	Resource string
	Number   int64
	// Slots is that of the request, see [locks.Request].
	Slots int
}

// Sight is how a ticket stands.
type Sight struct {
	Number int64
	// Turn tells that the ticket is the first live one and the resource is free, or has a share for it.
	Turn bool
	// After is the time until the first live ticket or, where this is the first, the lease ends: no look before can
	// see a turn that nobody announces. 0 when it is not known.
	After time.Duration
}
