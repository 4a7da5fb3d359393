package bunstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// postgresTx is the engine on a caller's transaction.
type postgresTx struct {
	postgres
	q transaction.Querier
	// conn tells that it is a connection, on which only the database knows whether a transaction is open.
	conn bool
}

func (p postgres) tx(q transaction.Querier, conn bool) txEngine {
	return &postgresTx{postgres: p, q: q, conn: conn}
}

// acquire tries in a savepoint that is undone unless it got the lease, so that a refusal leaves neither the gate nor a
// row's lock behind, and an error does not abort the caller's transaction.
func (t *postgresTx) acquire(ctx context.Context, request locks.Request) (lock locks.Lock, err error) {
	for ask := range maxAsks {
		var answer *row
		err := t.undoable(ctx, func() (keep bool, err error) {
			answer, err = t.one(ctx, t.q, t.sql.acquireTx, request.Resource, request.Owner, request.TTL.Microseconds(),
				metadataArg(request.Metadata), request.Attempt, request.Barge)
			if err != nil || answer == nil || !answer.live() {
				return false, err
			}
			if answer.what == "mine" { // found without the gate, and perhaps in the past
				grant := answer.lock.Grant()
				answer, err = t.one(ctx, t.q, t.sql.claim, grant.Resource, grant.Owner, grant.Token)
				return err == nil && answer != nil, err
			}
			return answer.what == "granted", nil
		})
		switch {
		case dberror.IsSQLState(err, dberror.SerializationFailure):
			return lock, stale(err) // the row was changed after the transaction's snapshot
		case err != nil:
			return lock, err
		case answer == nil && ask == 0: // as in an acquire of its own; a new snapshot, where there is one, mostly tells who
		case answer == nil:
			return lock, locks.Held(request.Resource, nil)
		case answer.what == "guarded":
			return lock, fmt.Errorf("%w: this transaction guards the lease of %q, and cannot acquire it", locks.ErrGuarded, request.Resource)
		case !answer.live(): // over before it was told
		case answer.what == "held":
			return lock, t.heldBy(ctx, t.q, t.sql.shareSeen, request, &answer.lock)
		default:
			return answer.lock, nil
		}
	}
	return lock, fmt.Errorf("the lease was over before it was granted, %d times", maxAsks)
}

func (t *postgresTx) renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	renewed, _, err := t.change(ctx, grant, "renewed", locks.ErrBusy, t.sql.renewTx, grant.Resource, grant.Owner, grant.Token, ttl.Microseconds())
	return renewed.lock, err
}

func (t *postgresTx) release(ctx context.Context, grant locks.Grant) (next int64, err error) {
	_, next, err = t.change(ctx, grant, "released", locks.ErrGuarded, t.sql.releaseTx, grant.Resource, grant.Owner, grant.Token)
	return next, err
}

// change does something to the grant's row, in a savepoint that is undone when it is refused. Where somebody else has the
// row or its gate it asks again for a while, and then answers busy. Whose turn it is after a release is announced in the same
// savepoint: both are done or neither, and an error does not abort the caller's transaction.
func (t *postgresTx) change(
	ctx context.Context, grant locks.Grant, done string, busy error, statement string, args ...any,
) (changed row, next int64, err error) {
	err = t.shortWait(ctx, busy, grant.Resource, func() (settled bool, err error) {
		var answer *row
		isDone := func() bool {
			return answer != nil && (answer.what == done || done == "released" && answer.what == "awaited")
		}
		err = t.undoable(ctx, func() (bool, error) {
			answer, err = t.one(ctx, t.q, statement, args...)
			if err == nil && isDone() && answer.what == "awaited" {
				// Its own channel too: who waits in this process may come through another store, or after a commit that nobody
				// tells of.
				next, err = t.next(ctx, t.q, grant.Resource, "")
			}
			return err == nil && isDone(), err
		})
		switch {
		case dberror.IsSQLState(err, dberror.SerializationFailure):
			return true, stale(err)
		case err != nil:
			return true, err
		case isDone():
			changed = *answer
			return true, nil
		case answer != nil && answer.lock.Owner == "":
			share, err := t.one(ctx, t.q, t.sql.shareSeen, grant.Resource, grant.Owner)
			switch {
			case err != nil:
				return true, err
			case share != nil && locks.Refuse(grant, &share.lock, share.live()) == nil:
				return true, errShareInTx()
			case share != nil:
				return t.refusal(ctx, grant, share, t.sql.shareProbe, grant.Resource, grant.Owner)
			}
		}
		return t.refusal(ctx, grant, answer, t.sql.probe, grant.Resource)
	})
	return changed, next, err
}

// guard is one round trip when it passes, and so in no savepoint: what it takes is taken away with the caller's. Under
// the levels with a snapshot a grant whose row changed its holder since makes it fail with 40001, which aborts the
// caller's transaction: only a new one could go on anyway.
func (t *postgresTx) guard(ctx context.Context, grant locks.Grant) error {
	if err := t.hasBegun(ctx); err != nil {
		return err
	}
	return t.shortWait(ctx, locks.ErrBusy, grant.Resource, func() (settled bool, err error) {
		answer, err := t.one(ctx, t.q, t.sql.guard, grant.Resource, grant.Owner, grant.Token)
		probe, asked := t.sql.probe, []any{grant.Resource}
		if err == nil && answer != nil && answer.lock.Owner == "" {
			group := answer
			if answer, err = t.one(ctx, t.q, t.sql.shareGuard, grant.Resource, grant.Owner, grant.Token); answer == nil {
				answer = group
			}
			probe, asked = t.sql.shareProbe, append(asked, grant.Owner)
		}
		switch {
		case dberror.IsSQLState(err, dberror.SerializationFailure):
			return true, stale(err)
		case err != nil:
			return true, err
		case answer != nil && answer.what == "guarded":
			return true, nil
		}
		return t.refusal(ctx, grant, answer, probe, asked...)
	})
}

// refusal finds why the grant was refused, seen being the row as the transaction sees it. It is not settled when the grant
// is current after all: then somebody had the row or its gate just then.
func (t *postgresTx) refusal(ctx context.Context, grant locks.Grant, seen *row, probe string, asked ...any) (settled bool, err error) {
	var lock *locks.Lock
	live := false
	if seen != nil {
		lock, live = &seen.lock, seen.live()
	}
	refused := locks.Refuse(grant, lock, live)
	if refused == nil {
		return false, nil
	}
	var isolation string
	err = t.query(ctx, t.q, 1, func(rows *sql.Rows) error { return rows.Scan(&isolation) }, postgresIsolation)
	if err != nil || isolation == "read committed" || isolation == "read uncommitted" {
		if err == nil {
			err = refused
		}
		return true, err
	}
	// The transaction sees the past. Whether that is still so, only a write can tell.
	var open bool
	err = t.undoable(ctx, func() (bool, error) {
		if err := t.exec(ctx, postgresProbeLimit); err != nil {
			return false, err
		}
		return false, t.query(ctx, t.q, 1, func(rows *sql.Rows) error { return rows.Scan(&open) }, probe, asked...)
	})
	switch {
	case err == nil && open:
		return true, refused
	case err == nil:
		return true, fmt.Errorf("%w: the lease is just being changed", locks.ErrStaleSnapshot)
	case dberror.IsSQLState(err, dberror.SerializationFailure, dberror.LockNotAvailable):
		return true, stale(err)
	}
	return true, err
}

func stale(err error) error { return fmt.Errorf("%w: %w", locks.ErrStaleSnapshot, err) }

// undoable runs try in a savepoint, which is released when try is to be kept, and rolled back otherwise: that frees at
// once what was locked in it, advisory locks too.
func (t *postgresTx) undoable(ctx context.Context, try func() (keep bool, err error)) error {
	return transaction.Savepoint{Name: "rowlease", Limit: t.callLimit}.Do(ctx, t.q, try)
}

// exec runs statements that answer nothing, within the call limit also where a caller's function has the time between.
func (t *postgresTx) exec(ctx context.Context, statements string) error {
	ctx, cancel := context.WithTimeout(ctx, t.callLimit)
	defer cancel()
	_, err := t.q.ExecContext(ctx, statements)
	return err
}

// hasBegun asks, on a connection, whether a transaction is open on it: a savepoint is an error otherwise. It asks each
// time, since the transaction of before may be over.
func (t *postgresTx) hasBegun(ctx context.Context) error {
	if !t.conn {
		return nil
	}
	return t.undoable(ctx, func() (bool, error) { return true, nil })
}

// rolledBack has nothing to do: the list of guards is in the transaction.
func (t *postgresTx) rolledBack() {}

func (t *postgresTx) alive(ctx context.Context) error {
	return t.exec(ctx, "SELECT 1")
}

func (t *postgresTx) savepoint(ctx context.Context, fn func(txEngine) error) error {
	return t.undoable(ctx, func() (bool, error) {
		err := fn(t)
		return err == nil, err
	})
}
