package bunstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/backoff"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// sqlite is the engine for SQLite.
type sqlite struct {
	runner
	sql       sqliteStatements
	busyLimit time.Duration
	// begin begins a transaction of the store's own as the file's writer.
	begin        func(context.Context, *sql.TxOptions) (*ownTx, error)
	transactions *sqliteTransactions
}

func newSQLite(run runner, t table, busyLimit time.Duration, begin func(context.Context, *sql.TxOptions) (*ownTx, error)) sqlite {
	return sqlite{
		runner: run, sql: newSQLiteStatements(t), busyLimit: busyLimit, begin: begin, transactions: newSQLiteTransactions(),
	}
}

// asker runs one statement that answers with at most one row: by itself, or in a caller's transaction.
type asker func(ctx context.Context, statement string, args ...any) (*row, error)

// sqliteHandle is what an acquire runs on: the store by itself, or a caller's transaction.
type sqliteHandle interface {
	// unlessBusy is for reads and for one statement that writes, together for several that are to happen all or none.
	unlessBusy(ctx context.Context, try func(context.Context, querier) error) error
	together(ctx context.Context, step func(context.Context, querier) error) error
}

func (s sqlite) acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	lock, mine, err := s.acquireOn(ctx, s, request)
	if err == nil && mine {
		err = s.servedBefore(ctx, request)
	}
	if err != nil {
		return locks.Lock{}, err
	}
	return lock, nil
}

// acquireOn reads first, and refuses on what it read: an upsert takes the write lock even to be refused. Mine tells that the
// attempt had its grant already.
func (s sqlite) acquireOn(ctx context.Context, on sqliteHandle, request locks.Request) (lock locks.Lock, mine bool, err error) {
	var refused error
	for range maxAsks {
		var stood sqliteStood
		var found *locks.Lock
		err := on.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
			stood, found, err = s.stood(ctx, q, request)
			return err
		})
		switch {
		case err != nil:
			return lock, false, err
		case found != nil:
			return *found, true, nil
		}
		var answer *row
		if stood.awaited {
			refused = nil
			err = on.together(ctx, func(ctx context.Context, q querier) (err error) {
				answer, err = s.grantQueued(ctx, q, request)
				return err
			})
		} else {
			err = on.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
				answer, refused, err = s.grant(ctx, q, request)
				return err
			})
		}
		switch {
		case err != nil:
			return lock, false, err
		case answer != nil:
			return answer.lock, false, nil
		}
	}
	if refused != nil { // and not because of a ticket
		return lock, false, refused
	}
	return lock, false, locks.Held(request.Resource, nil) // others were faster every time
}

func (s sqlite) renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	args := []any{grant.Resource, grant.Owner, grant.Token, ttl.Microseconds()}
	answer, err := s.change(ctx, s.ask, grant, func(ctx context.Context) (*row, error) {
		return s.changeShare(ctx, grant.Resource, s.sql.shareRenew, args...)
	}, s.sql.renew, args...)
	return answer.lock, err
}

func (s sqlite) release(ctx context.Context, grant locks.Grant) error {
	args := []any{grant.Resource, grant.Owner, grant.Token}
	answer, err := s.change(ctx, s.ask, grant, func(ctx context.Context) (*row, error) {
		return s.changeShare(ctx, grant.Resource, s.sql.shareRelease, args...)
	}, s.sql.release, args...)
	if err == nil {
		s.freed(ctx, answer)
	}
	return err
}

// change runs a statement that does something to the grant, or onShare where the resource is a group's, and finds the reason
// where it did nothing. It writes first: in a transaction what it reads afterwards is the present, since with the write
// lock there is no other.
func (s sqlite) change(
	ctx context.Context, ask asker, grant locks.Grant, onShare func(context.Context) (*row, error), statement string, args ...any,
) (row, error) {
	for range maxAsks {
		answer, err := ask(ctx, statement, args...)
		if err != nil {
			return row{}, err
		}
		if answer != nil {
			return *answer, nil
		}
		if answer, err = ask(ctx, s.sql.row, grant.Resource); err != nil {
			return row{}, err
		}
		if answer == nil {
			return row{}, locks.Refuse(grant, nil, false)
		}
		if group := answer; group.lock.Owner == "" {
			if answer, err = onShare(ctx); err != nil {
				return row{}, err
			}
			if answer != nil {
				answer.lock.Slots = group.lock.Slots
				return *answer, nil
			}
			if answer, err = ask(ctx, s.sql.shareRow, grant.Resource, grant.Owner); err != nil {
				return row{}, err
			}
			if answer == nil {
				answer = group
			}
		}
		if err := locks.Refuse(grant, &answer.lock, answer.live()); err != nil {
			return row{}, err
		}
	}
	return row{}, unsettled(grant.Resource)
}

// releaseAttempt reads first, as acquire does: whoever gives an acquire up asks for its grant again and again, and mostly there
// is none.
func (s sqlite) releaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	answer, err := s.ask(ctx, s.sql.get, resource)
	switch {
	case err != nil:
		return err
	case answer != nil && answer.lock.Owner == "":
		answer, err = s.changeShare(ctx, resource, s.sql.shareReleaseAttempt, resource, owner, attempt)
	case answer != nil && answer.lock.Owner == owner && answer.what == attempt:
		if answer, err = s.ask(ctx, s.sql.releaseAttempt, resource, owner, attempt); err == nil && answer != nil {
			s.freed(ctx, *answer)
		}
	default:
		answer = nil
	}
	if err == nil && answer == nil {
		err = locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
	}
	return err
}

func (s sqlite) get(ctx context.Context, resource string) (locks.Lock, error) {
	answer, err := s.ask(ctx, s.sql.get, resource)
	switch {
	case err != nil:
		return locks.Lock{}, err
	case answer == nil:
		return locks.Lock{}, locks.ErrNotFound
	}
	return answer.lock, nil
}

func (s sqlite) list(ctx context.Context, query locks.ListQuery) (page locks.Page, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		page, err = s.page(ctx, q, query.Limit, s.sql.list, query.Prefix, after(query.Prefix), query.After, query.Owner, query.Limit+1)
		return err
	})
	return page, err
}

// purge takes out as many dead tickets and ended shares, too, which are not counted.
func (s sqlite) purge(ctx context.Context, limit int) (n int, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		n = 0
		return s.query(ctx, q, limit+1, func(*sql.Rows) error { n++; return nil }, s.sql.purge, limit)
	})
	if err != nil {
		return n, err
	}
	for _, statement := range []string{s.sql.purgeTickets, s.sql.purgeShares} {
		err := s.unlessBusy(ctx, func(ctx context.Context, q querier) error {
			return s.query(ctx, q, limit+1, func(*sql.Rows) error { return nil }, statement, limit)
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s sqlite) forceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error) {
	for range maxAsks {
		answer, err := s.ask(ctx, s.sql.forceRelease, resource, token)
		if err != nil {
			return locks.Lock{}, err
		}
		if answer != nil {
			s.freed(ctx, *answer)
			return answer.lock, nil
		}
		switch answer, err = s.ask(ctx, s.sql.get, resource); {
		case err != nil:
			return locks.Lock{}, err
		case answer == nil:
			return locks.Lock{}, locks.ErrNotFound
		case answer.lock.Token == token: // it is a new one, or was renewed
			continue
		case answer.lock.Owner == "":
			slots := answer.lock.Slots
			if answer, err = s.changeShare(ctx, resource, s.sql.shareReleaseToken, resource, token); err != nil {
				return locks.Lock{}, err
			}
			if answer != nil {
				answer.lock.Slots = slots
				return answer.lock, nil
			}
		}
		return locks.Lock{}, anotherGrant(resource, token)
	}
	return locks.Lock{}, unsettled(resource)
}

// ask runs one statement under autocommit, so that a write has the file's write lock from its start and cannot meet the
// snapshot conflict of a transaction that has read before it writes. A read waits for nobody in WAL mode, in the other
// modes for a commit.
func (s sqlite) ask(ctx context.Context, statement string, args ...any) (answer *row, err error) {
	err = s.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		answer, err = s.one(ctx, q, statement, args...)
		return err
	})
	return answer, err
}

// unlessBusy tries again while the file is busy, for no longer than the context and the busy limit allow. A busy file
// has carried nothing out.
//
// The context bounds the wait for a connection and is looked at between the tries; a try itself runs to its end, which
// takes no longer than the host's busy_timeout. Drivers interrupt a statement whose context ends, and one of them
// (modernc.org/sqlite 1.38) then leaves the statement's write transaction open on the pooled connection, so that nobody
// writes to the file any more. What a try did is known, too, this way.
func (s sqlite) unlessBusy(ctx context.Context, try func(context.Context, querier) error) error {
	return s.whileBusy(ctx, func(ctx context.Context) error { return s.once(ctx, try) }, dberror.IsSQLiteBusy)
}

// whileBusy is that loop, for whatever is worth another try.
func (s sqlite) whileBusy(ctx context.Context, try func(context.Context) error, again func(error) bool) error {
	start := time.Now()
	deadline, bounded := ctx.Deadline()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		began := time.Now()
		busy := try(ctx)
		if busy == nil || !again(busy) {
			return busy
		}
		// Another try takes as long as this one did, the host's busy_timeout: one that ends after the context would do
		// its work when the caller has been told that it failed.
		took, left := time.Since(began), s.busyLimit-time.Since(start)
		if left <= 0 || bounded && time.Until(deadline) < took {
			return fmt.Errorf("%w: another writer had the file for %v: %w", locks.ErrBusy, time.Since(start).Round(time.Millisecond), busy)
		}
		if ended := backoff.Wait(ctx, min(pause, left)); ended != nil { // not tried once more: busy is what is known
			return fmt.Errorf("%w: %w: %w", locks.ErrBusy, ended, busy)
		}
	}
}

// once tries on a connection of its own, which the pool has back before a pause.
func (s sqlite) once(ctx context.Context, try func(context.Context, querier) error) error {
	conn, err := s.db.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return try(context.WithoutCancel(ctx), conn)
}
