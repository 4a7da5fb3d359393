package rowlock

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

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
	if err := transaction.NeedPostgres(tx.Dialect(), "SQLite has no row locks. "+
		"Begin the transaction with BEGIN IMMEDIATE, which keeps every other writer out, or guard a lease in it"); err != nil {
		return call{}, err
	}
	c, err := newConfig(options)
	return call{config: c, tx: tx, conn: q.(bun.IConn)}, err
}

// What runs with the savepoint's own statements. Its release keeps what SET LOCAL did since, so the timeouts of before
// have to be put back by hand; a parameter of our own carries them, which costs no round trip. It is a stack: a model's
// hook may lock another row within. A roll back to the savepoint puts everything back.
const (
	limitTimeouts = `SELECT set_config('rowlease.timeouts', concat_ws(' ', current_setting('lock_timeout'),
       current_setting('statement_timeout'), nullif(current_setting('rowlease.timeouts', true), '')), true);
SELECT set_config('lock_timeout', '%[1]d', true),
       set_config('statement_timeout', CASE WHEN s::interval > interval '0' AND s::interval < interval '%[2]d ms'
                                            THEN s ELSE '%[2]d' END, true)
FROM current_setting('statement_timeout') AS s`
	restoreTimeouts = `SELECT set_config('lock_timeout', split_part(t, ' ', 1), true),
       set_config('statement_timeout', split_part(t, ' ', 2), true),
       set_config('rowlease.timeouts', substr(t, length(split_part(t, ' ', 1) || split_part(t, ' ', 2)) + 3), true)
FROM current_setting('rowlease.timeouts') AS t`
)

// lock runs the statement that locks, with the limit.
func (c call) lock(ctx context.Context, table string, statement func(context.Context) error) error {
	what := fmt.Sprintf("rowlock: lock rows of %q", table)
	return c.within(ctx, what, table, "", true, statement)
}

// within runs the statement with the limit, in a savepoint that it leaves nothing of. What was set first, and what the
// statement did, goes too unless it is to be kept. The error has a name to branch on.
func (c call) within(ctx context.Context, what, table, first string, keep bool, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit+overrun+answerLimit)
	defer cancel()
	savepoint := transaction.Savepoint{
		Name:  "rowlease_rowlock",
		Begin: first + fmt.Sprintf(limitTimeouts, transaction.Milliseconds(c.limit), transaction.Milliseconds(c.limit+overrun)),
		End:   restoreTimeouts,
		Limit: answerLimit,
	}
	err := savepoint.Do(ctx, c.conn, func() (bool, error) {
		sent := time.Now()
		err := statement(ctx)
		return keep, c.answer(ctx, what, table, err, time.Since(sent))
	})
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
