package advisory

import (
	"context"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// TryLockTx takes the lock for the caller's transaction, or answers at once that it is held. PostgreSQL frees it when
// the transaction ends, or with the rollback to a savepoint before it; there is no unlock. A transaction that holds
// the lock gets it again, also shared beside its own exclusive one. A refused try leaves nothing behind and the
// transaction usable.
//
// The transaction is a [bun.Tx], a savepoint's too, or a [bun.Conn] on which one was begun by hand.
//
// Under REPEATABLE READ and SERIALIZABLE the transaction's snapshot may be older than the lock: what the previous
// holder wrote is then not seen. Take the lock under READ COMMITTED.
//
// Errors: [*locks.HeldError] when it is held, also when those who wait for it come first; [*locks.InvalidError] for a
// bad name or option, for SQLite, and for what is no open transaction, one that an error has aborted included;
// otherwise the database's, or the context's end, after which the transaction can only be rolled back. A call ends
// after [DefaultCallLimit]. Safe for concurrent use as far as the transaction is.
func TryLockTx(ctx context.Context, tx bun.IDB, name string, options ...Option) error {
	return lockTx(ctx, tx, name, true, options)
}

// LockTx is [TryLockTx] that waits, for [WithLimit] at most (5 s by default) beside that call's limit. When that is
// over it answers [*locks.HeldError], and the transaction is as it was before: the wait runs in a savepoint. When the
// context ends first, the connection may be broken, and the transaction can then only be rolled back; where it is not,
// the savepoint is undone all the same, which has that call's limit of its own.
//
// Waiters are served in their order, but for one that has waited 4 s: it steps back and asks again, and the server's
// log has a line on it ("canceling statement due to lock timeout"). Under a statement_timeout of less than 8 s that is
// after half of it. The transaction's lock_timeout does not count here, and stays what it is.
//
// Two transactions that wait for each other are told apart by PostgreSQL, with [locks.ErrSerialization] for one of them.
// It looks for such a deadlock after deadlock_timeout, 1 s by default; where that is longer than the single wait, 4 s or
// more, or the limit is shorter, both waits end by their limits, as held.
//
// Under REPEATABLE READ and SERIALIZABLE the snapshot is from before the wait, see [TryLockTx].
func LockTx(ctx context.Context, tx bun.IDB, name string, options ...Option) error {
	return lockTx(ctx, tx, name, false, options)
}

func lockTx(ctx context.Context, tx bun.IDB, name string, try bool, options []Option) error {
	until := time.Now()
	r, err := newRequest(name, try, options)
	if err != nil {
		return err
	}
	q, conn, err := transaction.Of(tx)
	if err != nil {
		return err
	}
	if err := needPostgres(tx.Dialect()); err != nil {
		return err
	}
	limit := DefaultCallLimit
	if !try {
		until = until.Add(r.limit)
		limit += r.limit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	granted, err := r.tryTx(ctx, q, conn)
	if err == nil && !granted && !try {
		granted, err = wait(ctx, until, DefaultCallLimit, func(ctx context.Context, slice string) (bool, error) {
			return inSavepoint(ctx, q, func() (bool, error) {
				yes, _, err := ask(ctx, q, r.form(waitTxStatement), r.key, slice)
				return yes, err
			})
		})
	}
	if err == nil && !granted {
		return locks.Held(name, nil)
	}
	return dberror.Wrap(ctx, r.what(), err)
}

// tryTx needs one round trip, whether or not the lock is free. On a bun.Conn only the database knows whether a
// transaction is open, and without one it would grant and free: a savepoint asks.
func (r request) tryTx(ctx context.Context, q transaction.Querier, conn bool) (bool, error) {
	try := func() (bool, error) {
		yes, _, err := ask(ctx, q, r.form(tryTxStatement), r.key)
		return yes, err
	}
	if conn {
		return inSavepoint(ctx, q, try)
	}
	return try()
}

// inSavepoint undoes what take did unless it was granted, and leaves no savepoint behind.
func inSavepoint(ctx context.Context, q transaction.Querier, take func() (bool, error)) (granted bool, err error) {
	savepoint := transaction.Savepoint{Name: "rowlease_advisory", Limit: DefaultCallLimit}
	err = savepoint.Do(ctx, q, func() (bool, error) {
		granted, err = take()
		return granted, err
	})
	return granted && err == nil, err
}

func needPostgres(d schema.Dialect) error {
	return transaction.NeedPostgres(d, "SQLite has no advisory locks; use a lease (locks.New on a bunstore.Store), "+
		"or BEGIN IMMEDIATE, which keeps every other writer out")
}
