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
	var found []sqliteFound
	err := s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		found, err = s.settled(ctx, q, requests)
		return err
	})
	if err != nil {
		return nil, err
	}
	granted := make([]locks.Lock, len(requests))
	missing := false
	for i := range requests {
		if found[i].own == nil {
			missing = true
			continue
		}
		granted[i] = *found[i].own
	}
	if !missing {
		return granted, nil
	}
	err = s.together(ctx, func(ctx context.Context, q querier) error {
		found, err := s.settled(ctx, q, requests)
		if err != nil {
			return err
		}
		for i, request := range requests {
			if found[i].own != nil {
				granted[i] = *found[i].own
				continue
			}
			var answer *row
			var refused error
			if found[i].awaited {
				answer, err = s.grantQueued(ctx, q, request)
			} else {
				answer, refused, err = s.grant(ctx, q, request)
			}
			switch {
			case err != nil:
				return err
			case refused != nil: // not because of a ticket: there is none
				return refused
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

// sqliteFound is what was found of a request that is not refused: the grant that its attempt has already, and whether there
// is a ticket.
type sqliteFound struct {
	own     *locks.Lock
	awaited bool
}

// settled reads how all that is asked for stands, in one statement and so as of one instant, but for whose turn it is. It
// refuses on the first one that is to be refused.
func (s sqlite) settled(ctx context.Context, q querier, requests []locks.Request) ([]sqliteFound, error) {
	asked := placeholders(1, len(requests))
	statement := strings.NewReplacer("{resources}", asked, "{each}", "("+strings.ReplaceAll(asked, ", ", "), (")+")").Replace(s.sql.glances)
	stood, args := make(map[string]*sqliteStood, len(requests)), make([]any, len(requests))
	for i, request := range requests {
		stood[request.Resource], args[i] = new(sqliteStood), request.Resource
	}
	err := s.query(ctx, q, 2*len(requests), func(rows *sql.Rows) error {
		answer := new(row)
		if err := answer.scan(rows); err != nil {
			return err
		}
		stood[answer.lock.Resource].add(answer)
		return nil
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	found := make([]sqliteFound, len(requests))
	for i, request := range requests {
		if found[i].own, err = s.settle(ctx, q, *stood[request.Resource], request); err != nil {
			return nil, err
		}
		found[i].awaited = stood[request.Resource].awaited
	}
	return found, nil
}

// together runs step in a transaction of the store's own, which has the file's write lock from its begin. It is committed
// when step returns nil, and rolled back otherwise, also when a hook panics. The context bounds the begin and the commit,
// not the statements between: see unlessBusy.
func (s sqlite) together(ctx context.Context, step func(context.Context, querier) error) error {
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
