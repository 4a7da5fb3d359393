package bunstore

import (
	"context"
	"database/sql"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// acquireShare reads first, and refuses on what it read, then again with the file's write lock.
func (s sqlite) acquireShare(ctx context.Context, request locks.Request) (lock locks.Lock, err error) {
	var found *locks.Lock
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		_, found, err = s.shareStood(ctx, q, request)
		return err
	})
	switch {
	case err != nil:
		return locks.Lock{}, err
	case found != nil:
		return *found, s.servedBefore(ctx, request)
	}
	awaited := false
	err = s.together(ctx, func(ctx context.Context, q querier) error {
		stood, found, err := s.shareStood(ctx, q, request)
		if err != nil {
			return err
		}
		if found != nil {
			lock = *found
			return nil
		}
		if stood.lease == nil {
			begun, err := s.numbers(ctx, q, 1, s.sql.shareBegin, request.Resource, slotsArg(request.Slots), request.TTL.Microseconds())
			if err != nil || len(begun) == 0 { // the clock was set back
				return orHeld(err, request.Resource)
			}
		}
		answer, err := s.one(ctx, q, s.sql.shareGrant, request.Resource, request.Owner, request.TTL.Microseconds(),
			metadataArg(request.Metadata), request.Attempt)
		if err != nil || answer == nil {
			return orHeld(err, request.Resource)
		}
		lock = answer.lock
		lock.Slots = request.Slots
		if awaited, err = s.endGroup(ctx, q, request.Resource); err != nil {
			return err
		}
		_, err = s.numbers(ctx, q, 101, s.sql.served, request.Resource, request.Owner, request.Attempt)
		return err
	})
	if err != nil {
		return locks.Lock{}, err
	}
	if awaited { // as after a release: there may be room for the next one
		s.tell(ctx, request.Resource)
	}
	return lock, nil
}

func orHeld(err error, resource string) error {
	if err == nil {
		err = locks.Held(resource, nil)
	}
	return err
}

// shareStood reads how the resource stands, and settles what that settles.
func (s sqlite) shareStood(ctx context.Context, q querier, request locks.Request) (stood shareStood, found *locks.Lock, err error) {
	err = s.query(ctx, q, 4, func(rows *sql.Rows) error {
		answer := new(row)
		err := answer.scan(rows)
		stood.add(answer)
		return err
	}, s.sql.shareStood, request.Resource, request.Owner, request.Attempt, mostArg(request.Slots))
	if err != nil {
		return stood, nil, err
	}
	found, err = stood.settle(request)
	return stood, found, err
}

// endGroup makes the group end with the last of its shares, at once where there is none. Awaited tells that somebody may wait.
func (s sqlite) endGroup(ctx context.Context, q querier, resource string) (awaited bool, err error) {
	live, err := s.numbers(ctx, q, 1, s.sql.shareEnd, resource)
	if err == nil && len(live) == 0 {
		_, err = s.numbers(ctx, q, 1, s.sql.shareOver, resource)
	}
	if err != nil {
		return false, err
	}
	n, err := s.count(ctx, q, s.sql.awaited, resource)
	return n > 0, err
}

// changeShare runs a statement that does something to a share, and sets its group's end; nil where it did nothing.
func (s sqlite) changeShare(ctx context.Context, resource, statement string, args ...any) (answer *row, err error) {
	awaited := false
	err = s.together(ctx, func(ctx context.Context, q querier) error {
		if answer, err = s.one(ctx, q, statement, args...); err != nil || answer == nil {
			return err
		}
		awaited, err = s.endGroup(ctx, q, resource)
		return err
	})
	if err != nil {
		return nil, err
	}
	if answer != nil && awaited && answer.what != "renewed" {
		s.tell(ctx, resource)
	}
	return answer, nil
}

func (s sqlite) holders(ctx context.Context, resource string, limit int) (found []locks.Lock, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		found, err = s.sharesOf(ctx, q, limit, s.sql.holders, resource, limit)
		return err
	})
	return found, err
}

// lookAtShare looks at the ticket of one who waits for a share; it sees nothing of one that is not live.
func (s sqlite) lookAtShare(ctx context.Context, ticket waitqueue.Ticket) (seen []waitqueue.Sight, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		seen = nil
		return s.query(ctx, q, 1, func(rows *sql.Rows) error {
			sight, err := scanSight(rows)
			seen = append(seen, sight)
			return err
		}, s.sql.shareLook, ticket.Number, slotsArg(ticket.Slots), mostArg(ticket.Slots))
	})
	return seen, err
}
