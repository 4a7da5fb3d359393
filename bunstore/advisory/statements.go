package advisory

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// The statements take the shared form of PostgreSQL's functions where the lock is shared. $1 is the key; it stands in
// parentheses since a driver that writes arguments into the text would have the cast bind closer than a minus. $2 is
// the longest wait, in milliseconds as text.
const (
	// The longest wait, or half the session's statement_timeout where that is less: its error would not tell that it was
	// a lock, and could come after a grant.
	limitLockTimeout = `set_config('lock_timeout', greatest(1, least(($2)::text::int,
    nullif(500 * extract(epoch FROM current_setting('statement_timeout')::interval), 0)))::int::text, true)`

	tryTxStatement = `SELECT pg_try_advisory_xact_lock(($1)::bigint), pg_backend_pid()`

	// One round trip, after which lock_timeout is what it was. Each step needs the one before, and so comes after it.
	waitTxStatement = `WITH before AS MATERIALIZED (SELECT current_setting('lock_timeout') AS lock_timeout),
limited AS MATERIALIZED (SELECT lock_timeout, ` + limitLockTimeout + ` AS done FROM before),
taken AS MATERIALIZED (SELECT lock_timeout,
    pg_advisory_xact_lock(CASE WHEN done IS NOT NULL THEN ($1)::bigint END)::text AS done FROM limited)
SELECT set_config('lock_timeout', CASE WHEN done IS NOT NULL THEN lock_timeout END, true) IS NOT NULL, pg_backend_pid()
FROM taken`

	tryStatement = `SELECT pg_try_advisory_lock(($1)::bigint), pg_backend_pid()`

	// The wait is for the lock of the statement's own transaction; then the session's is there for the taking. A lock
	// of the session that is granted just as the wait is broken off would survive the error.
	waitStatement = `WITH limited AS MATERIALIZED (SELECT ` + limitLockTimeout + ` AS done),
waited AS MATERIALIZED (SELECT
    pg_advisory_xact_lock(CASE WHEN done IS NOT NULL THEN ($1)::bigint END)::text AS done FROM limited)
SELECT pg_advisory_lock(CASE WHEN done IS NOT NULL THEN ($1)::bigint END)::text IS NOT NULL, pg_backend_pid()
FROM waited`

	unlockStatement = `SELECT pg_advisory_unlock(($1)::bigint), pg_backend_pid()`

	pingStatement = `SELECT true, pg_backend_pid()`
)

var sharedForm = strings.NewReplacer(
	"pg_try_advisory_xact_lock(", "pg_try_advisory_xact_lock_shared(",
	"pg_advisory_xact_lock(", "pg_advisory_xact_lock_shared(",
	"pg_try_advisory_lock(", "pg_try_advisory_lock_shared(",
	"pg_advisory_lock(", "pg_advisory_lock_shared(",
	"pg_advisory_unlock(", "pg_advisory_unlock_shared(",
)

func (r request) form(statement string) string {
	if r.shared {
		return sharedForm.Replace(statement)
	}
	return statement
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// ask runs a statement that answers yes or no, and which backend said so. Only a nil error makes the answer count: it
// can come, and the statement's commit still fail.
func ask(ctx context.Context, q querier, statement string, args ...any) (yes bool, backend int64, err error) {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return false, 0, err
	}
	defer rows.Close() //nolint:errcheck // the close that tells is the one at the end
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return false, 0, err
		}
		return false, 0, errNoAnswer
	}
	if err := rows.Scan(&yes, &backend); err != nil {
		return false, 0, err
	}
	if err := rows.Close(); err != nil {
		return false, 0, err
	}
	return yes, backend, nil
}

var errNoAnswer = errors.New("the database gave no answer")
