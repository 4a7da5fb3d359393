// Package pooler finds out whether connections go through a pooler that hands a backend from client to client after
// each transaction, as PgBouncer does in transaction mode. What belongs to a session does not work through one.
package pooler

import (
	"context"
	"database/sql"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// Querier is a connection that is asked outside transactions: a *sql.Conn, or bun's handle on one.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Beginner is a connection on which a transaction is begun: a *sql.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// rounds of questions. One finds a pooler that is at rest; others' use of it can make one round look as without.
const rounds = 2

// Multiplexed reports whether the connections a and b were seen to share backends, or one of them to change its own.
// It changes nothing and leaves no transaction open. A pooler that others keep busy can by chance look like none; an
// error may itself be a sign, see [LostStatement].
func Multiplexed(ctx context.Context, a Querier, b Beginner) (bool, error) {
	first, err := backend(ctx, a)
	if err != nil {
		return false, err
	}
	for range rounds {
		if found, err := round(ctx, a, b, first); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// round asks b within a transaction, a during that, and a twice after it. The backend that served a's first question
// is the likeliest to serve b's transaction (a pooler takes the one that was used last); while b keeps it, a gets
// another one; and a pooler that goes round its backends gives a another one for each question, at the latest when it
// has all.
func round(ctx context.Context, a Querier, b Beginner, first int64) (bool, error) {
	tx, err := b.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() //nolint:errcheck // it has been rolled back, or has failed
	// Known by now, it must not ask a again: a pooler with one backend would let it wait for b's transaction.
	if other, err := backend(ctx, tx); err != nil || other == first {
		return err == nil, err
	}
	if again, err := backend(ctx, a); err != nil || again != first {
		return err == nil, err
	}
	if err := tx.Rollback(); err != nil {
		return false, err
	}
	for range 2 {
		if again, err := backend(ctx, a); err != nil || again != first {
			return err == nil, err
		}
	}
	return false, nil
}

func backend(ctx context.Context, q Querier) (pid int64, err error) {
	rows, err := q.QueryContext(ctx, `SELECT pg_backend_pid()`)
	if err != nil {
		return 0, err
	}
	defer rows.Close() //nolint:errcheck // the close that tells is the one at the end
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return 0, err
		}
		return 0, sql.ErrNoRows
	}
	if err := rows.Scan(&pid); err != nil {
		return 0, err
	}
	return pid, rows.Close()
}

// LostStatement reports whether a prepared statement was not there, or was there already: another backend answered
// than the one that the driver had prepared it on.
func LostStatement(err error) bool { return dberror.IsSQLState(err, "26000", "42P05", "08P01") }
