package bunstore

import (
	"context"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// sqliteTx is the engine on a caller's transaction. A transaction that writes has the file's write lock to its end, so
// that a change, and a guard, which is one too, keep out every other writer. Nothing is undone when a try is refused:
// the lock of the file stays with the transaction whatever is rolled back to.
type sqliteTx struct {
	sqlite
	q transaction.Querier
	// conn tells that it is a connection, on which only the database knows whether a transaction is open.
	conn   bool
	guards *sqliteGuards // the transaction's
	own    []string      // what this handle has added to them
}

func (s sqlite) tx(q transaction.Querier, conn bool) txEngine {
	return &sqliteTx{sqlite: s, q: q, conn: conn, guards: s.transactions.guardsOf(q)}
}

func (t *sqliteTx) acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	if t.guards.has(request.Resource) {
		return locks.Lock{}, fmt.Errorf("%w: this transaction guards the lease of %q, and cannot acquire it", locks.ErrGuarded, request.Resource)
	}
	lock, mine, err := t.acquireOn(ctx, t, request)
	if mine { // by a read: as a part of the transaction it is written
		answer, err := t.change(ctx, t.ask, lock.Grant(), t.noShare(lock.Grant()), t.sql.guard, lock.Resource, lock.Owner, lock.Token)
		return answer.lock, err
	}
	return lock, err
}

func (t *sqliteTx) renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	answer, err := t.change(ctx, t.ask, grant, t.noShare(grant), t.sql.renew, grant.Resource, grant.Owner, grant.Token, ttl.Microseconds())
	return answer.lock, err
}

func (t *sqliteTx) release(ctx context.Context, grant locks.Grant) (next int64, err error) {
	answer, err := t.change(ctx, t.ask, grant, t.noShare(grant), t.sql.release, grant.Resource, grant.Owner, grant.Token)
	if err != nil || answer.what != "awaited" {
		return 0, err
	}
	return t.next(ctx, t, grant.Resource)
}

func (t *sqliteTx) guard(ctx context.Context, grant locks.Grant) error {
	args := []any{grant.Resource, grant.Owner, grant.Token}
	_, err := t.change(ctx, t.ask, grant, func(ctx context.Context) (*row, error) {
		return t.ask(ctx, t.sql.shareGuard, args...)
	}, t.sql.guard, args...)
	if err == nil {
		t.guards.add(grant.Resource)
		t.own = append(t.own, grant.Resource)
	}
	return err
}

// noShare refuses to change a share in the transaction; a grant that is none is another's.
func (t *sqliteTx) noShare(grant locks.Grant) func(context.Context) (*row, error) {
	return func(ctx context.Context) (*row, error) {
		share, err := t.ask(ctx, t.sql.shareRow, grant.Resource, grant.Owner)
		if err == nil && share != nil && locks.Refuse(grant, &share.lock, share.live()) == nil {
			err = errShareInTx()
		}
		return nil, err
	}
}

// ask runs one statement.
func (t *sqliteTx) ask(ctx context.Context, statement string, args ...any) (answer *row, err error) {
	err = t.unlessBusy(ctx, func(ctx context.Context, q querier) (err error) {
		answer, err = t.one(ctx, q, statement, args...)
		return err
	})
	return answer, err
}

// unlessBusy tries again while another writer has the file, for as long as the busy limit, unless the transaction has read
// before that writer: then its snapshot is too old, and no wait helps.
func (t *sqliteTx) unlessBusy(ctx context.Context, try func(context.Context, querier) error) error {
	if err := t.hasBegun(ctx); err != nil {
		return err
	}
	return t.whileBusy(ctx, func(ctx context.Context) error {
		return try(context.WithoutCancel(ctx), t.q)
	}, func(err error) bool {
		return dberror.SQLiteCode(err) != dberror.SQLiteBusySnapshot && dberror.IsSQLiteBusy(err)
	})
}

// together runs the step in a savepoint.
func (t *sqliteTx) together(ctx context.Context, step func(context.Context, querier) error) error {
	return t.unlessBusy(ctx, func(ctx context.Context, q querier) error {
		return t.savepoint(ctx, func(txEngine) error { return step(ctx, q) })
	})
}

// hasBegun asks, on a connection, whether a transaction is open on it: BEGIN is an error then. It asks each time, since
// the transaction of before may be over, SQLite having rolled back by itself.
func (t *sqliteTx) hasBegun(ctx context.Context) error {
	if !t.conn {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	_, err := t.q.ExecContext(ctx, "BEGIN")
	switch {
	case err == nil:
		if _, err := t.q.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
		return &locks.InvalidError{Field: "transaction", Reason: "has not begun on this connection, or is over"}
	case dberror.SQLiteCode(err)&0xff == dberror.SQLiteError: // the code that an open transaction is told by
		return nil
	}
	return err
}

// alive has nothing to ask: an error does not abort a transaction of SQLite's, and where SQLite has rolled back by itself
// the commit fails.
func (t *sqliteTx) alive(context.Context) error { return nil }

func (t *sqliteTx) rolledBack() {
	t.guards.remove(t.own)
	t.own = nil
}

func (t *sqliteTx) savepoint(ctx context.Context, fn func(txEngine) error) error {
	if err := t.hasBegun(ctx); err != nil {
		return err
	}
	detached := context.WithoutCancel(ctx)
	if _, err := t.q.ExecContext(detached, "SAVEPOINT rowlease"); err != nil {
		return err
	}
	inner := &sqliteTx{sqlite: t.sqlite, q: t.q, conn: t.conn, guards: t.guards}
	released := false
	defer func() { // also when fn panics
		if !released {
			_, _ = t.q.ExecContext(detached, "ROLLBACK TO SAVEPOINT rowlease")
			_, _ = t.q.ExecContext(detached, "RELEASE SAVEPOINT rowlease")
			inner.rolledBack()
		}
	}()
	if err := fn(inner); err != nil {
		return err
	}
	if _, err := t.q.ExecContext(detached, "RELEASE SAVEPOINT rowlease"); err != nil {
		return err
	}
	released = true
	t.own, inner.own = append(t.own, inner.own...), nil
	return nil
}
