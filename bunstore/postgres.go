package bunstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// postgres is the engine for PostgreSQL.
type postgres struct {
	runner
	sql postgresStatements
	// isolation is 0 until the database was asked for its default, then how statements run.
	isolation *atomic.Int32
	waiting   *waitingHere
}

const (
	autocommit int32 = iota + 1 // the default is READ COMMITTED: one round trip
	explicit                    // the default is another: a transaction that says READ COMMITTED
)

func newPostgres(run runner, t table) postgres {
	return postgres{runner: run, sql: newPostgresStatements(t), isolation: new(atomic.Int32), waiting: new(waitingHere)}
}

func (p postgres) acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	args := []any{request.Resource, request.Owner, request.TTL.Microseconds(), metadataArg(request.Metadata), request.Attempt}
	queued := request.Barge || p.waiting.has(request)
	for ask := range maxAsks {
		statement, args := p.sql.acquire, args
		if queued {
			statement, args = p.sql.acquireQueued, append(args, request.Barge)
		}
		answer, err := p.ask(ctx, statement, args...)
		switch {
		case err != nil:
			return locks.Lock{}, err
		case answer == nil && ask == 0:
			// The gate was closed, or somebody was faster: perhaps an earlier request of this very attempt. A new snapshot
			// mostly tells who. Or somebody waits, perhaps this attempt.
			queued = true
		case answer == nil:
			return locks.Lock{}, locks.Held(request.Resource, nil)
		case !answer.live(): // over before it was told, a grant after a wait or a holder just now: ask again
		case answer.what == "held":
			return locks.Lock{}, p.heldBy(ctx, p.db.DB, p.sql.shareSeen, request, &answer.lock)
		default:
			return answer.lock, nil
		}
	}
	return locks.Lock{}, fmt.Errorf("the lease was over before it was granted, %d times", maxAsks)
}

func (p postgres) renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	return p.change(ctx, grant, "renewed", locks.ErrBusy, p.sql.renew, p.sql.shareRenew,
		grant.Resource, grant.Owner, grant.Token, ttl.Microseconds())
}

func (p postgres) release(ctx context.Context, grant locks.Grant) error {
	lock, err := p.change(ctx, grant, "released", locks.ErrGuarded, p.sql.release, p.sql.shareRelease,
		grant.Resource, grant.Owner, grant.Token)
	if err == nil && lock.Remaining <= 0 {
		err = locks.Refuse(grant, &lock, false)
	}
	return err
}

// change runs a statement that does something to the grant or answers with the row that it saw; where that is a group's, the
// one for shares. Where an open transaction has the row or its gate it asks again for a while, and then answers busy.
func (p postgres) change(
	ctx context.Context, grant locks.Grant, done string, busy error, statement, onShare string, args ...any,
) (lock locks.Lock, err error) {
	err = p.shortWait(ctx, busy, grant.Resource, func() (settled bool, err error) {
		answer, err := p.ask(ctx, statement, args...)
		if err == nil && answer != nil && answer.lock.Owner == "" {
			group := answer
			if answer, err = p.askShares(ctx, grant.Resource, onShare, args...); err == nil && answer == nil {
				answer = group
			} else if answer != nil {
				answer.lock.Slots = group.lock.Slots
			}
		}
		switch {
		case err != nil:
			return true, err
		case answer == nil:
			return true, locks.Refuse(grant, nil, false)
		case answer.what == done || done == "released" && answer.what == "awaited":
			lock = answer.lock
			p.freed(ctx, answer)
			return true, nil
		}
		err = locks.Refuse(grant, &answer.lock, answer.live())
		return err != nil, err
	})
	return lock, err
}

func (p postgres) releaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	return p.shortWait(ctx, locks.ErrGuarded, resource, func() (settled bool, err error) {
		answer, err := p.ask(ctx, p.sql.releaseAttempt, resource, owner, attempt)
		if err == nil && answer == nil {
			answer, err = p.releaseShareAttempt(ctx, resource, owner, attempt)
		}
		switch {
		case err != nil:
			return true, err
		case answer == nil:
			return true, locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
		case !answer.live():
			p.freed(ctx, answer)
			return true, locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
		}
		p.freed(ctx, answer)
		return answer.what != "seen", nil
	})
}

func (p postgres) get(ctx context.Context, resource string) (locks.Lock, error) {
	answer, err := p.one(ctx, p.db.DB, p.sql.get, resource)
	switch {
	case err != nil:
		return locks.Lock{}, err
	case answer == nil || !answer.live():
		return locks.Lock{}, locks.ErrNotFound
	}
	return answer.lock, nil
}

func (p postgres) list(ctx context.Context, query locks.ListQuery) (locks.Page, error) {
	return p.page(ctx, p.db.DB, query.Limit, p.sql.list, query.Prefix, after(query.Prefix), query.After, query.Owner, query.Limit+1)
}

func (p postgres) purge(ctx context.Context, limit int) (n int, err error) {
	err = p.committed(ctx, func(q querier) (err error) {
		n, err = p.count(ctx, q, p.sql.purge, limit)
		return err
	})
	if err != nil {
		return n, err
	}
	return n, p.committed(ctx, func(q querier) error {
		_, err := p.count(ctx, q, p.sql.purgeShares, limit)
		return err
	})
}

func (p postgres) forceRelease(ctx context.Context, resource string, token int64) (lock locks.Lock, err error) {
	err = p.shortWait(ctx, locks.ErrGuarded, resource, func() (settled bool, err error) {
		answer, err := p.ask(ctx, p.sql.forceRelease, resource, token)
		switch {
		case err != nil:
			return true, err
		case answer == nil:
			return true, locks.ErrNotFound
		case answer.what != "seen":
			lock = answer.lock
			p.freed(ctx, answer)
			return true, nil
		case answer.lock.Token == token:
			return false, nil
		case answer.lock.Owner == "":
			lock, settled, err = p.forceReleaseShare(ctx, resource, token, answer.lock.Slots)
			return settled, err
		}
		return true, anotherGrant(resource, token)
	})
	return lock, err
}

// ask runs one statement that answers with at most one row, and has it committed.
func (p postgres) ask(ctx context.Context, statement string, args ...any) (answer *row, err error) {
	err = p.committed(ctx, func(q querier) (err error) {
		answer, err = p.one(ctx, q, statement, args...)
		return err
	})
	return answer, err
}

// committed runs one statement in a transaction of its own under READ COMMITTED, whatever the session's default is:
// under the stricter levels contention is an error, and unrelated resources contend. Nil means committed.
func (p postgres) committed(ctx context.Context, statement func(querier) error) error {
	isolation := p.isolation.Load()
	if isolation == 0 {
		var err error
		if isolation, err = p.askIsolation(ctx); err != nil {
			return err
		}
		p.isolation.Store(isolation)
	}
	if isolation == autocommit {
		err := statement(p.db.DB)
		if !dberror.IsSQLState(err, dberror.SerializationFailure) {
			return err
		}
		// The default differs from the one that was seen, of this session or of all; nothing was changed. It is asked for
		// again by the next call.
		p.isolation.Store(0)
	}
	return p.readCommitted(ctx, func(q querier) (bool, error) { return true, statement(q) })
}

// readCommitted runs step in a transaction of its own at that level, which is committed where step says so.
func (p postgres) readCommitted(ctx context.Context, step func(querier) (commit bool, err error)) error {
	tx, err := p.db.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing; before, what step came to is the news
	if commit, err := step(tx); err != nil || !commit {
		return err
	}
	return tx.Commit()
}

func (p postgres) askIsolation(ctx context.Context) (int32, error) {
	var level string
	err := p.query(ctx, p.db.DB, 1, func(rows *sql.Rows) error { return rows.Scan(&level) }, "SHOW default_transaction_isolation")
	if err != nil {
		return 0, err
	}
	if level == "read committed" || level == "read uncommitted" { // PostgreSQL has no lower level than the first
		return autocommit, nil
	}
	return explicit, nil
}
