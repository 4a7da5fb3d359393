package locks

import (
	"context"
	"time"
)

// Queuer is a store that serves those who wait for a resource in the order in which they came. [Locker] waits through it
// where the store is one. A store need not write it anew: package waitqueue makes it of a few statements.
//
// Once somebody has a place in the queue of a resource, whoever has none, or a later one, is refused as "held", also
// while the resource is free ([*HeldError] without a holder). Two are not: the owner who holds it already, and a
// request with Barge.
type Queuer interface {
	// Enqueue gives the attempt of the request a place at the end of the resource's queue; an attempt that has one
	// already keeps it. It grants nothing. The resource may have become free just before: acquire once more when
	// Enqueue has returned, and from then on whenever the place says so. The acquire that is granted takes the attempt's
	// ticket out of the queue in the same step.
	//
	// With most above 0 it refuses where so many wait already.
	//
	// Errors: [ErrQueueFull]; [ErrInvalid]; [ErrBusy].
	Enqueue(ctx context.Context, request Request, most int) (Place, error)

	// Waiters returns how many wait for the resource and who the first ones are, at most limit of them, 0 for none.
	// Errors: [ErrInvalid].
	Waiters(ctx context.Context, resource string, limit int) (Queue, error)
}

// Place is the place of one waiter in a queue. It is safe for concurrent use. Whoever was given it calls Served or Leave
// in the end.
type Place interface {
	// Waiter returns the ticket as it was drawn.
	Waiter() Waiter
	// Turn has an element whenever an acquire may be granted. It may have one in vain, and never lacks one for ever.
	Turn() <-chan struct{}
	// Lapsed tells that the ticket has ended by time, since the process did not run or could not reach the store: who
	// waits on must enqueue again, behind those who came meanwhile.
	Lapsed() bool
	// Served tells that the attempt was granted: its ticket is gone by that.
	Served()
	// Leave gives the place up, and the turn to the next. It ends with ctx; a ticket that stays ends by time.
	Leave(ctx context.Context) error
}

// Waiter is a ticket: one who waits for a resource.
type Waiter struct {
	Resource string
	Owner    string
	// Number orders the waiters of a resource: who came first has the smaller one.
	Number int64
	// Since is when the ticket was drawn, by the store's clock.
	Since time.Time
	// ExpiresAt is when the ticket ends unless its process keeps it.
	ExpiresAt time.Time
}

// Queue is who waits for a resource, at one instant.
type Queue struct {
	// Waiting is how many there are.
	Waiting int
	// Waiters are the first ones, in their order: the place of Waiters[i] is i+1.
	Waiters []Waiter
}

// MaxListWaiters is how many waiters one call of [Queuer.Waiters] returns at most.
const MaxListWaiters = 1000

// ValidateWaiters reports, as an [*InvalidError], the first argument of [Queuer.Waiters] that breaks a rule.
func ValidateWaiters(resource string, limit int) error {
	if err := ValidateResource(resource); err != nil {
		return err
	}
	if limit == 0 {
		return nil
	}
	return validateLimit(limit, MaxListWaiters)
}

// Waker hears, over a connection of its own, what other processes announce in the database: with PostgreSQL, by
// LISTEN/NOTIFY. It needs a driver's own means, and so comes from a small module of its own, bunstore/pgxwaker or
// bunstore/pgdriverwaker, which the host passes to its store. A store without one polls.
type Waker interface {
	// Listen opens a connection, listens on the channel, calls listening once it does, and then heard with the payload of
	// each notification, one after another, until ctx ends or the connection fails. It closes the connection before it
	// returns, always with an error. The channel is a plain identifier of lower-case letters, digits and underscores.
	Listen(ctx context.Context, channel string, listening func(), heard func(payload string)) error
}
