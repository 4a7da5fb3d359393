package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// acquireAll reads first, as acquire does, and then again with the file's write lock: what it reads there stays so until
// its transaction ends.
func (s sqlite) acquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	var own map[string]locks.Lock
	err := s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		own, err = s.settled(ctx, q, requests)
		return err
	})
	if err != nil {
		return nil, err
	}
	granted := make([]locks.Lock, len(requests))
	if len(own) == len(requests) {
		for i, request := range requests {
			granted[i] = own[request.Resource]
		}
		return granted, nil
	}
	err = s.inOwnTx(ctx, func(ctx context.Context, q querier) error {
		own, err := s.settled(ctx, q, requests)
		if err != nil {
			return err
		}
		for i, request := range requests {
			var found bool
			if granted[i], found = own[request.Resource]; found {
				continue
			}
			answer, err := s.one(ctx, q, s.sql.acquire, request.Resource, request.Owner, request.TTL.Microseconds(),
				metadataArg(request.Metadata), request.Attempt)
			switch {
			case err != nil:
				return err
			case answer == nil: // the clock was set back
				return locks.Held(request.Resource, nil)
			}
			granted[i] = answer.lock
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return granted, nil
}

// settled reads the rows of all that is asked for, in one statement and so as of one instant. It refuses on the first one
// that somebody else holds, and returns the grants that the attempts have already.
func (s sqlite) settled(ctx context.Context, q querier, requests []locks.Request) (own map[string]locks.Lock, err error) {
	statement := strings.Replace(s.sql.rows, "{resources}", "?"+strings.Repeat(", ?", len(requests)-1), 1)
	asked, args := make(map[string]locks.Request, len(requests)), make([]any, len(requests))
	for i, request := range requests {
		asked[request.Resource], args[i] = request, request.Resource
	}
	own = make(map[string]locks.Lock)
	var held *row
	err = s.query(ctx, q, len(requests), func(rows *sql.Rows) error {
		var found row
		if err := found.scan(rows); err != nil {
			return err
		}
		request := asked[found.lock.Resource]
		switch {
		case !found.live():
		case found.lock.Owner != request.Owner:
			if held == nil {
				held = &found
			}
		case found.what == request.Attempt:
			own[request.Resource] = found.lock
		}
		return nil
	}, statement, args...)
	if err == nil && held != nil {
		err = locks.Held(held.lock.Resource, &held.lock)
	}
	return own, err
}

// inOwnTx runs step in a transaction of the store's own, which has the file's write lock from its begin. It is committed
// when step returns nil, and rolled back otherwise, also when a hook panics. The context bounds the begin and the commit,
// not the statements between: see unlessBusy.
func (s sqlite) inOwnTx(ctx context.Context, step func(context.Context, querier) error) error {
	own, err := s.begin(ctx, nil)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_, _ = own.end(errors.New("the transaction's step did not return"))
		}
	}()
	q, _, err := transaction.Of(own.handle)
	if err == nil {
		err = step(context.WithoutCancel(ctx), q)
	}
	returned = true
	_, err = own.end(err)
	return err
}

// sqliteRows: as sqliteRow, for all of the {resources}, in byte order.
const sqliteRows = `
SELECT attempt, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata
FROM {table} WHERE resource IN ({resources}) ORDER BY resource`
