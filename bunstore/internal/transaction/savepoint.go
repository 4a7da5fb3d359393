package transaction

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// Savepoint is a part of a PostgreSQL transaction that can be undone alone: with it goes at once what was locked and set
// in it, advisory locks too.
type Savepoint struct {
	// Name is the savepoint's. Within one of the same name it is another.
	Name string
	// Begin and End are statements in the round trips that make and release the savepoint, or "".
	Begin, End string
	// Limit bounds each of these round trips, and the undo.
	Limit time.Duration
}

// Execer is what the savepoint's own statements run on: a [Querier], whose statements no query hook sees or breaks off.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Do runs try in the savepoint, which is released when what it did is to be kept, and rolled back otherwise, also when it
// panics. Where it cannot be rolled back the transaction is lost: then that is the error and try's is only its text, since a
// refusal must not say that nothing is left of it.
func (s Savepoint) Do(ctx context.Context, q Execer, try func() (keep bool, err error)) (err error) {
	if err := s.exec(ctx, q, "SAVEPOINT "+s.Name, s.Begin); err != nil {
		// Without an answer of the server nothing was sent, as on a context that has ended, and a roll back to a savepoint
		// which is not there would abort the transaction; or the connection is lost.
		if s.Begin != "" && dberror.SQLState(err) != "" && !dberror.IsSQLState(err, dberror.NoTransaction, dberror.TransactionAborted) {
			_ = s.undo(ctx, q) // if the savepoint was made; if not, the transaction is aborted and this harms nothing
		}
		return err
	}
	kept := false
	defer func() { // also when a hook panics
		if kept {
			return
		}
		undone := s.undo(ctx, q)
		switch {
		case undone == nil:
		case err == nil:
			err = undone
		default:
			err = dberror.Wrap(ctx, "the transaction is lost", fmt.Errorf("%w (after: %s)", undone, err.Error()))
		}
	}()
	keep, err := try()
	if keep && err == nil {
		err = s.exec(ctx, q, s.End, "RELEASE SAVEPOINT "+s.Name)
		kept = err == nil
	}
	return err
}

// undo is detached, so that a refusal's locks go also when the context ends just now. It fails where the connection is
// broken, and the transaction with it.
func (s Savepoint) undo(ctx context.Context, q Execer) error {
	return s.exec(context.WithoutCancel(ctx), q, "ROLLBACK TO SAVEPOINT "+s.Name, "RELEASE SAVEPOINT "+s.Name)
}

// exec is one round trip: a text without arguments goes by the simple protocol, in every driver.
func (s Savepoint) exec(ctx context.Context, q Execer, first, second string) error {
	text := first
	switch {
	case first == "":
		text = second
	case second != "":
		text += ";\n" + second
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	_, err := q.ExecContext(ctx, text)
	return err
}
