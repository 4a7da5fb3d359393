// Package transaction looks at the handles that bun has on a caller's transaction, and does a part of one so that it can
// be undone alone.
package transaction

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks"
)

// Querier runs statements on one connection: a *sql.Tx or a *sql.Conn. Statements that run on it take placeholders; bun
// would write the arguments into the text.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Wrapper is a handle around another one.
type Wrapper interface{ Unwrap() bun.IDB }

// Of returns what lies under bun's handle on a transaction: a [bun.Tx], that of a savepoint too, or a [bun.Conn] on
// which the caller has begun one by hand (conn is then true: nobody but the database knows whether it is open). Errors:
// an [*locks.InvalidError] for the transaction: nil, zero, and a *bun.DB, each of whose statements may run on another
// connection.
func Of(handle bun.IDB) (q Querier, conn bool, err error) {
	const field = "transaction"
	switch h := handle.(type) {
	case nil:
		return nil, false, &locks.InvalidError{Field: field, Reason: "must not be nil"}
	case Wrapper:
		return Of(h.Unwrap())
	case bun.Tx:
		if h.Tx != nil {
			return h.Tx, false, nil
		}
	case *bun.Tx:
		if h != nil && h.Tx != nil {
			return h.Tx, false, nil
		}
	case bun.Conn:
		if h.Conn != nil {
			return h.Conn, true, nil
		}
	case *bun.Conn:
		if h != nil && h.Conn != nil {
			return h.Conn, true, nil
		}
	case *bun.DB:
		return nil, false, &locks.InvalidError{
			Field: field, Reason: "must be a bun.Tx, or a bun.Conn with one open: each statement of a *bun.DB is a transaction of its own",
		}
	default:
		return nil, false, &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must be a bun.Tx or a bun.Conn, got %T", handle)}
	}
	return nil, false, &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must have begun, got a zero %T", handle)}
}

// Usable refuses, as an [*locks.InvalidError], a handle on a database or a transaction that bun would panic on: nil, or
// zero.
func Usable(handle bun.IDB) error {
	ok := handle != nil
	switch h := handle.(type) {
	case Wrapper:
		return Usable(h.Unwrap())
	case *bun.DB:
		ok = h != nil
	case bun.Tx:
		ok = h.Tx != nil
	case *bun.Tx:
		ok = h != nil && h.Tx != nil
	case bun.Conn:
		ok = h.Conn != nil
	case *bun.Conn:
		ok = h != nil && h.Conn != nil
	}
	if !ok {
		return &locks.InvalidError{Field: "db", Reason: fmt.Sprintf("must not be nil or zero, got a %T", handle)}
	}
	return nil
}
