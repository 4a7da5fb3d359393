package bunstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

func (p postgres) enqueue(ctx context.Context, request locks.Request, ttl time.Duration, channel string, most int) (locks.Waiter, error) {
	waiter := locks.Waiter{Resource: request.Resource, Owner: request.Owner}
	err := p.shortWait(ctx, locks.ErrBusy, request.Resource, func() (settled bool, err error) {
		drawn := false
		err = p.committed(ctx, func(q querier) error {
			return p.query(ctx, q, 1, func(rows *sql.Rows) error {
				var since, expires int64
				drawn = true
				err := rows.Scan(&waiter.Number, &since, &expires)
				waiter.Since, waiter.ExpiresAt = time.UnixMicro(since).UTC(), time.UnixMicro(expires).UTC()
				return err
			}, p.sql.enqueue, request.Resource, request.Owner, request.Attempt, channel, ttl.Microseconds(), most)
		})
		if err == nil && !drawn {
			err = locks.ErrQueueFull
		}
		return err != nil || waiter.Number != 0, err
	})
	switch {
	case err != nil:
		return locks.Waiter{}, err
	case most == 0:
		return waiter, nil
	}
	// Some may have come between the statement's snapshot and the gate. Who has a smaller number was first, so that of any who
	// come at once as many stay as there is room for.
	before, err := p.count(ctx, p.db.DB, p.sql.before, request.Resource, waiter.Number, most)
	if err != nil {
		return locks.Waiter{}, err
	}
	if before < most {
		return waiter, nil
	}
	next, err := p.dequeue(ctx, request.Resource, request.Owner, request.Attempt)
	if err != nil {
		return locks.Waiter{}, err
	}
	p.wake(next)
	return locks.Waiter{}, locks.ErrQueueFull
}

// dequeue announces in a statement of its own, when the ticket is gone, whichever it was: of any who leave together, and of
// who frees the resource meanwhile, each may have told one of the others, and only the last one sees who is left.
func (p postgres) dequeue(ctx context.Context, resource, owner, attempt string) (next int64, err error) {
	var number int64
	err = p.committed(ctx, func(q querier) error {
		return p.query(ctx, q, 1, func(rows *sql.Rows) error { return rows.Scan(&number) }, p.sql.dequeue, resource, owner, attempt)
	})
	if err != nil || number == 0 {
		return 0, err
	}
	return p.tell(ctx, resource), nil
}

// freed tells whose turn it is after a release.
func (p postgres) freed(ctx context.Context, answer *row) {
	if answer.what == "awaited" {
		p.wake(p.tell(ctx, answer.lock.Resource))
	}
}

// tell announces whose turn it is after what is committed, and returns the ticket, 0 for none. The caller's context may have
// ended by now, which must not cost the next one its turn; it is no failure when that cannot be told: who waits looks.
func (p postgres) tell(ctx context.Context, resource string) int64 {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.callLimit)
	defer cancel()
	next, err := p.next(ctx, p.db.DB, resource, p.channel)
	if err != nil {
		return 0
	}
	return next
}

// next announces the first ticket of a free resource, unless it hears on the channel, and returns it, 0 for none.
func (p postgres) next(ctx context.Context, q querier, resource, channel string) (number int64, err error) {
	err = p.query(ctx, q, 1, func(rows *sql.Rows) error { return rows.Scan(&number) }, p.sql.next, resource, channel)
	return number, err
}

// keepAtOnce is how many tickets one statement keeps: an acquire that takes one of them out waits for the statement.
const keepAtOnce = 1000

func (p postgres) keep(ctx context.Context, tickets []int64, ttl time.Duration, channel string) (kept []int64, err error) {
	kept = make([]int64, 0, len(tickets))
	for len(tickets) > 0 {
		some := tickets[:min(len(tickets), keepAtOnce)]
		tickets = tickets[len(some):]
		live, err := p.keepSome(ctx, some, ttl, channel)
		if err != nil {
			return nil, err
		}
		kept = append(kept, live...)
	}
	return kept, nil
}

func (p postgres) keepSome(ctx context.Context, tickets []int64, ttl time.Duration, channel string) (live []int64, err error) {
	asked, err := json.Marshal(tickets)
	if err != nil {
		return nil, err
	}
	err = p.committed(ctx, func(q querier) error {
		live = make([]int64, 0, len(tickets))
		return p.query(ctx, q, len(tickets), func(rows *sql.Rows) error {
			var number int64
			err := rows.Scan(&number)
			live = append(live, number)
			return err
		}, p.sql.keep, string(asked), ttl.Microseconds(), channel)
	})
	return live, err
}

func (p postgres) look(ctx context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	type ticket struct {
		Resource string `json:"resource"`
		Number   int64  `json:"number"`
	}
	var alone []ticket
	var shares []waitqueue.Ticket
	for _, t := range tickets {
		if t.Slots == 0 {
			alone = append(alone, ticket{t.Resource, t.Number})
		} else {
			shares = append(shares, t)
		}
	}
	sights, err := p.sights(ctx, len(alone), p.sql.look, alone)
	if err != nil {
		return nil, err
	}
	more, err := p.lookAtShares(ctx, shares)
	return append(sights, more...), err
}

func (p postgres) waiters(ctx context.Context, resource string, limit int) (queue locks.Queue, err error) {
	err = p.query(ctx, p.db.DB, max(limit, 1), func(rows *sql.Rows) error {
		var number, since, expires sql.NullInt64
		var owner sql.NullString
		if err := rows.Scan(&queue.Waiting, &number, &owner, &since, &expires); err != nil || !number.Valid {
			return err
		}
		queue.Waiters = append(queue.Waiters, locks.Waiter{
			Resource: resource, Owner: owner.String, Number: number.Int64,
			Since: time.UnixMicro(since.Int64).UTC(), ExpiresAt: time.UnixMicro(expires.Int64).UTC(),
		})
		return nil
	}, p.sql.waiters, resource, limit)
	return queue, err
}

func (p postgres) announce(ctx context.Context, channel, payload string) error {
	return p.query(ctx, p.db.DB, 1, func(rows *sql.Rows) error {
		var told bool
		return rows.Scan(&told)
	}, p.sql.announce, channel, payload)
}
