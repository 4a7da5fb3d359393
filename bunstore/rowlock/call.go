package rowlock

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

const (
	// overrun is what a call may take beyond its limit before the server ends it: for several waits, one after the
	// other, and for the query itself. It leaves lock_timeout, which tells that it was a lock, the first word.
	overrun = 2 * time.Second
	// answerLimit is how long the server may take to say so, or to do anything else, before the connection is given up.
	answerLimit = 5 * time.Second
)

// call is one call's options and the transaction that it runs in.
type call struct {
	config
	tx   bun.IDB
	conn bun.IConn // what lies under tx
}

func newCall(tx bun.IDB, options []Option) (call, error) {
	q, _, err := transaction.Of(tx)
	if err != nil {
		return call{}, err
	}
	switch name := tx.Dialect().Name(); name {
	case dialect.PG:
	case dialect.SQLite:
		return call{}, &locks.InvalidError{Field: "dialect", Reason: "must be PostgreSQL: SQLite has no row locks. " +
			"Begin the transaction with BEGIN IMMEDIATE, which keeps every other writer out, or guard a lease in it"}
	default:
		return call{}, &locks.InvalidError{Field: "dialect", Reason: fmt.Sprintf("must be PostgreSQL, got %v", name)}
	}
	c, err := newConfig(options)
	return call{config: c, tx: tx, conn: q.(bun.IConn)}, err
}

// The three statements around a call's own. RELEASE keeps what SET LOCAL did since the savepoint, so the timeouts of
// before have to be put back by hand; a parameter of our own carries them, which costs no round trip. ROLLBACK TO puts
// everything back. Several statements in one text and no argument: drivers send that as it is, in one message.
const (
	saveAndLimit = `SAVEPOINT rowlease_rowlock;
SELECT set_config('rowlease.lock_timeout', current_setting('lock_timeout'), true),
       set_config('rowlease.statement_timeout', current_setting('statement_timeout'), true);
SELECT set_config('lock_timeout', '%[1]d', true),
       set_config('statement_timeout', CASE WHEN s::interval > interval '0' AND s::interval < interval '%[2]d ms'
                                            THEN s ELSE '%[2]d' END, true)
FROM current_setting('rowlease.statement_timeout') AS s`
	restoreAndRelease = `SELECT set_config('lock_timeout', current_setting('rowlease.lock_timeout'), true),
       set_config('statement_timeout', current_setting('rowlease.statement_timeout'), true);
RELEASE SAVEPOINT rowlease_rowlock`
	rollBack = `ROLLBACK TO SAVEPOINT rowlease_rowlock; RELEASE SAVEPOINT rowlease_rowlock`
)

// lock runs the statement that locks, with the limit.
func (c call) lock(ctx context.Context, table string, statement func(context.Context) error) error {
	limit := fmt.Sprintf(saveAndLimit, milliseconds(c.limit), milliseconds(c.limit+overrun))
	what := fmt.Sprintf("rowlock: lock rows of %q", table)
	return c.within(ctx, what, limit, restoreAndRelease, func(ctx context.Context) error {
		sent := time.Now()
		err := statement(ctx)
		return c.answer(ctx, what, table, err, time.Since(sent))
	})
}

// within runs the statement between one that opens the savepoint and one that closes it, and leaves no savepoint
// behind. The error has a name to branch on.
func (c call) within(ctx context.Context, what, open, shut string, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit+overrun+answerLimit)
	defer cancel()
	if err := c.exec(ctx, open); err != nil {
		// Without an answer of the server nothing was sent, as on a context that has ended, and a roll back to a savepoint
		// which is not there would abort the transaction; or the connection is lost.
		if dberror.SQLState(err) != "" && !dberror.IsSQLState(err, dberror.NoTransaction, dberror.TransactionAborted) {
			_ = c.undo(ctx) // if the savepoint was made; if not, the transaction is aborted and this harms nothing
		}
		return dberror.Wrap(ctx, what, err)
	}
	err := statement(ctx)
	if err == nil {
		err = c.exec(ctx, shut)
	}
	if err == nil {
		return nil
	}
	if lost := c.undo(ctx); lost != nil {
		// Only the text of the first error: "held" would promise that the transaction can go on.
		return dberror.Wrap(ctx, what, fmt.Errorf("the transaction is lost: %w (after: %s)", lost, err.Error()))
	}
	return dberror.Wrap(ctx, what, err)
}

// answer names what the statement's error means to the caller, where dberror cannot know.
func (c call) answer(ctx context.Context, what, table string, err error, took time.Duration) error {
	if err == nil || dberror.ContextEnd(ctx) != nil {
		return err
	}
	switch dberror.SQLState(err) {
	case dberror.LockNotAvailable:
		held := &HeldError{Table: table, Err: err}
		if c.policy == "" || took >= c.limit { // NOWAIT waits for a lock on the table
			held.Limit = c.limit
		}
		return held
	case dberror.QueryCanceled:
		if took >= c.limit+overrun { // our own statement_timeout; earlier it is the session's, or an operator
			return fmt.Errorf("%s: not within %v: %w: %w", what, c.limit+overrun, locks.ErrBusy, err)
		}
	}
	return err
}

// undo rolls back to the savepoint, also when the caller has gone: the transaction may go on.
func (c call) undo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	return c.exec(ctx, rollBack)
}

func (c call) exec(ctx context.Context, statements string) error {
	_, err := c.tx.ExecContext(ctx, statements)
	return err
}

// milliseconds rounds up: 0 would mean without a limit.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
