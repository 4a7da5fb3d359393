package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// sqliteStood is how a resource stood when it was read: its lease's row, live or ended, and whether it had a ticket.
type sqliteStood struct {
	lease   *row
	awaited bool
}

// add takes one row of sqliteGlance.
func (s *sqliteStood) add(r *row) {
	if r.lock.Token == 0 { // tokens begin at 1
		s.awaited = true
	} else {
		s.lease = r
	}
}

// settle refuses the request where it is to be refused, and returns the grant that its attempt has already. Nil and nil is
// for asking the statement that acquires.
func (s sqlite) settle(ctx context.Context, q querier, stood sqliteStood, request locks.Request) (found *locks.Lock, err error) {
	if lease := stood.lease; lease != nil && lease.live() {
		switch {
		case lease.lock.Owner != request.Owner:
			return nil, s.heldBy(ctx, q, s.sql.shareRow, request, &lease.lock)
		case lease.what == request.Attempt: // this very attempt's own
			return &lease.lock, nil
		}
		return nil, nil // a new grant in place, whoever waits
	}
	if !stood.awaited || request.Barge {
		return nil, nil
	}
	head, err := s.one(ctx, q, s.sql.head, request.Resource)
	if err == nil && head != nil && (head.lock.Owner != request.Owner || head.what != request.Attempt) {
		err = locks.Held(request.Resource, nil)
	}
	return nil, err
}

// stood reads how the resource stands, and settles what that settles.
func (s sqlite) stood(ctx context.Context, q querier, request locks.Request) (stood sqliteStood, found *locks.Lock, err error) {
	err = s.query(ctx, q, 2, func(rows *sql.Rows) error {
		answer := new(row)
		err := answer.scan(rows)
		stood.add(answer)
		return err
	}, s.sql.glance, request.Resource)
	if err != nil {
		return stood, nil, err
	}
	found, err = s.settle(ctx, q, stood, request)
	return stood, found, err
}

// grant acquires what has no ticket. Refused is how the table refuses it when it has one by now.
func (s sqlite) grant(ctx context.Context, q querier, request locks.Request) (answer *row, refused, err error) {
	answer, err = s.one(ctx, q, s.sql.acquire, request.Resource, request.Owner, request.TTL.Microseconds(),
		metadataArg(request.Metadata), request.Attempt)
	if dberror.SQLiteCode(err)&0xff == dberror.SQLiteConstraint {
		return nil, err, nil
	}
	return answer, nil, err
}

// grantQueued acquires what somebody waits for and takes the attempt's ticket out: both or neither, which is the caller's to
// see to. Nil is the answer "not any more".
func (s sqlite) grantQueued(ctx context.Context, q querier, request locks.Request) (*row, error) {
	answer, err := s.one(ctx, q, s.sql.acquireQueued, request.Resource, request.Owner, request.TTL.Microseconds(),
		metadataArg(request.Metadata), request.Attempt, request.Barge)
	if err != nil || answer == nil {
		return nil, err
	}
	if _, err := s.numbers(ctx, q, 101, s.sql.served, request.Resource, request.Owner, request.Attempt); err != nil {
		return nil, err
	}
	return answer, nil
}

// servedBefore takes out the ticket of an attempt that had been granted already when it drew it, as a retry can.
func (s sqlite) servedBefore(ctx context.Context, request locks.Request) error {
	has := false
	err := s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		has, err = s.place(ctx, q, request, 0, new(locks.Waiter))
		return err
	})
	if err != nil || !has {
		return err
	}
	next, err := s.dequeue(ctx, request.Resource, request.Owner, request.Attempt)
	if err == nil {
		s.wake(next)
	}
	return err
}

// freed tells whose turn it is after a release. It is not the release's failure when that cannot be told: who waits looks.
func (s sqlite) freed(ctx context.Context, answer row) {
	if answer.what == "awaited" {
		s.tell(ctx, answer.lock.Resource)
	}
}

// tell wakes whose turn it may be.
func (s sqlite) tell(ctx context.Context, resource string) {
	if next, err := s.next(ctx, s, resource); err == nil {
		s.wake(next)
	}
}

// next returns the first ticket of a free resource, 0 for none.
func (s sqlite) next(ctx context.Context, on sqliteHandle, resource string) (number int64, err error) {
	err = on.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		number = 0
		return s.query(ctx, q, 1, func(rows *sql.Rows) error { return rows.Scan(&number) }, s.sql.next, resource)
	})
	return number, err
}

// enqueue asks first, as acquire does: who has a ticket, or finds the queue full, does not wait for the file's writer.
func (s sqlite) enqueue(ctx context.Context, request locks.Request, ttl time.Duration, channel string, most int) (waiter locks.Waiter, err error) {
	waiter = locks.Waiter{Resource: request.Resource, Owner: request.Owner}
	has := false
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		has, err = s.place(ctx, q, request, most, &waiter)
		return err
	})
	switch {
	case err != nil:
		return locks.Waiter{}, err
	case has:
		return waiter, nil
	}
	err = s.together(ctx, func(ctx context.Context, q querier) error {
		if has, err := s.place(ctx, q, request, most, &waiter); err != nil || has {
			return err
		}
		if _, err := s.numbers(ctx, q, 101, s.sql.served, request.Resource, request.Owner, request.Attempt); err != nil {
			return err
		}
		return s.query(ctx, q, 1, func(rows *sql.Rows) error {
			var since, expires int64
			err := rows.Scan(&waiter.Number, &since, &expires)
			waiter.Since, waiter.ExpiresAt = time.UnixMicro(since).UTC(), time.UnixMicro(expires).UTC()
			return err
		}, s.sql.enqueue, request.Resource, request.Owner, request.Attempt, channel, ttl.Microseconds())
	})
	if err != nil {
		return locks.Waiter{}, err
	}
	return waiter, nil
}

// place reports whether the attempt has a live ticket, and writes it to the waiter; if it has none and the queue is full, it
// refuses.
func (s sqlite) place(ctx context.Context, q querier, request locks.Request, most int, waiter *locks.Waiter) (has bool, err error) {
	var waiting int
	var number, since, expires sql.NullInt64
	err = s.query(ctx, q, 1, func(rows *sql.Rows) error {
		return rows.Scan(&waiting, &number, &since, &expires)
	}, s.sql.place, request.Resource, request.Owner, request.Attempt, most)
	switch {
	case err != nil:
		return false, err
	case number.Valid:
		waiter.Number = number.Int64
		waiter.Since, waiter.ExpiresAt = time.UnixMicro(since.Int64).UTC(), time.UnixMicro(expires.Int64).UTC()
		return true, nil
	case most > 0 && waiting >= most:
		return false, locks.ErrQueueFull
	}
	return false, nil
}

func (s sqlite) dequeue(ctx context.Context, resource, owner, attempt string) (next int64, err error) {
	first := false
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		first = false
		return s.query(ctx, q, 1, func(rows *sql.Rows) error { return rows.Scan(&first) }, s.sql.dequeue, resource, owner, attempt)
	})
	if err != nil || !first {
		return 0, err
	}
	return s.next(ctx, s, resource)
}

// sqliteAtOnce is how many tickets one statement is about. Others write between two of them.
const sqliteAtOnce = 1000

// keep counts a ticket as kept when the commit is known: that of a statement by itself could be lost with its last row.
func (s sqlite) keep(ctx context.Context, tickets []int64, ttl time.Duration, channel string) ([]int64, error) {
	kept := make([]int64, 0, len(tickets))
	for some := range slices.Chunk(tickets, sqliteAtOnce) {
		var live []int64
		err := s.together(ctx, func(ctx context.Context, q querier) (err error) {
			statement, args := inPlaceholders(s.sql.keep, some, ttl.Microseconds(), channel)
			if live, err = s.numbers(ctx, q, len(some), statement, args...); err != nil || len(live) == 0 {
				return err
			}
			statement, args = inPlaceholders(s.sql.clear, live)
			_, err = s.numbers(ctx, q, 1, statement, args...)
			return err
		})
		if err != nil {
			return nil, err
		}
		kept = append(kept, live...)
	}
	return kept, nil
}

func (s sqlite) look(ctx context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	sights := make([]waitqueue.Sight, 0, len(tickets))
	alone := make([]waitqueue.Ticket, 0, len(tickets))
	for _, ticket := range tickets {
		if ticket.Slots == 0 {
			alone = append(alone, ticket)
			continue
		}
		seen, err := s.lookAtShare(ctx, ticket)
		if err != nil {
			return nil, err
		}
		sights = append(sights, seen...)
	}
	for some := range slices.Chunk(alone, sqliteAtOnce) {
		numbers := make([]int64, len(some))
		for i, ticket := range some {
			numbers[i] = ticket.Number
		}
		statement, args := inPlaceholders(s.sql.look, numbers)
		before := len(sights)
		err := s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
			sights = sights[:before]
			return s.query(ctx, q, len(some), func(rows *sql.Rows) error {
				sight, err := scanSight(rows)
				sights = append(sights, sight)
				return err
			}, statement, args...)
		})
		if err != nil {
			return nil, err
		}
	}
	return sights, nil
}

func (s sqlite) waiters(ctx context.Context, resource string, limit int) (queue locks.Queue, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		queue = locks.Queue{}
		return s.query(ctx, q, max(limit, 1), func(rows *sql.Rows) error {
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
		}, s.sql.waiters, resource, limit)
	})
	return queue, err
}

// announce is never asked: a store on SQLite has no waker.
func (s sqlite) announce(context.Context, string, string) error {
	return fmt.Errorf("%w: SQLite cannot announce anything to other processes", errors.ErrUnsupported)
}

// numbers runs a statement that answers with the numbers of tickets, at most so many.
func (s sqlite) numbers(ctx context.Context, q querier, most int, statement string, args ...any) (numbers []int64, err error) {
	err = s.query(ctx, q, most, func(rows *sql.Rows) error {
		var number int64
		err := rows.Scan(&number)
		numbers = append(numbers, number)
		return err
	}, statement, args...)
	return numbers, err
}

// inPlaceholders puts one placeholder for each number into the statement, after those of the arguments that come first.
func inPlaceholders(statement string, numbers []int64, first ...any) (string, []any) {
	args := append(make([]any, 0, len(first)+len(numbers)), first...)
	for _, number := range numbers {
		args = append(args, number)
	}
	return strings.Replace(statement, "{numbers}", placeholders(len(first)+1, len(args)), 1), args
}

// placeholders are ?first to ?last, numbered, so that a statement can have them twice.
func placeholders(first, last int) string {
	var list []byte
	for n := first; n <= last; n++ {
		list = strconv.AppendInt(append(list, ", ?"...), int64(n), 10)
	}
	return strings.TrimPrefix(string(list), ", ")
}
