package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/backoff"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// DefaultTries is how often [Store.RunInTx] runs its function at most.
const DefaultTries = 5

// RunOption configures one [Store.RunInTx].
type RunOption interface{ applyRun(*runConfig) error }

type runConfig struct{ tries int }

type runOption func(*runConfig) error

func (o runOption) applyRun(c *runConfig) error { return o(c) }

// WithTries sets how often the function is run at most, from 1 to 100; [DefaultTries] by default.
func WithTries(n int) RunOption {
	return runOption(func(c *runConfig) error {
		if n < 1 || n > 100 {
			return &locks.InvalidError{Field: "tries", Reason: fmt.Sprintf("must be from 1 to 100, got %d", n)}
		}
		c.tries = n
		return nil
	})
}

// RunInTx runs fn in a transaction, which is committed when fn returns nil and rolled back otherwise, also when fn
// panics. What fails in a way that a new transaction may get over ([Retryable]), in fn or at the commit, is run again, up
// to five times in all, with short random pauses: so fn can run more than once, and must do nothing that a rollback does
// not undo. A commit without an answer is not run again.
//
// Opts are those of the transaction, nil for the database's defaults. On SQLite it begins as a writer (BEGIN IMMEDIATE),
// whatever opts say of the isolation, so that it cannot meet a snapshot conflict; it must not be read-only there.
//
// Errors: fn's; the database's at begin or commit, with [locks.ErrSerialization] or [locks.ErrBusy] where it is worth a
// new try; [locks.ErrInvalid] for a bad option; a context's end. A statement's error that fn does not return still
// aborts the transaction on PostgreSQL: return it.
func (s *Store) RunInTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *Tx) error, options ...RunOption) error {
	c := runConfig{tries: DefaultTries}
	for _, option := range options {
		if option == nil {
			return &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option.applyRun(&c); err != nil {
			return err
		}
	}
	if fn == nil {
		return &locks.InvalidError{Field: "function", Reason: "must not be nil"}
	}
	pauses := backoff.New(5*time.Millisecond, 200*time.Millisecond)
	for try := 1; ; try++ {
		outcome, err := s.runOnce(ctx, opts, fn)
		if err == nil || try == c.tries || outcome == locks.Unknown || !Retryable(err) || ctx.Err() != nil {
			return err
		}
		if ended := backoff.Wait(ctx, pauses.Next()); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// InTx implements [locks.Transactor]: [Store.RunInTx] with a single try, under READ COMMITTED whatever the database's
// default is. What is acquired in a transaction may come free while that begins: a snapshot would then be older than what
// the holder before wrote.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx locks.Tx) error) error {
	if fn == nil {
		return &locks.InvalidError{Field: "function", Reason: "must not be nil"}
	}
	_, err := s.runOnce(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx *Tx) error { return fn(ctx, tx) })
	return err
}

var _ locks.Transactor = (*Store)(nil)

// Retryable reports whether a new transaction may get over the error: one that is [locks.ErrRetryable], or a driver's own
// of that kind (a serialization failure, a deadlock, a lock timeout; a busy file).
func Retryable(err error) bool {
	return errors.Is(err, locks.ErrRetryable) || dberror.IsRetryable(err)
}

func (s *Store) runOnce(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *Tx) error) (outcome locks.Outcome, err error) {
	if err := ctx.Err(); err != nil {
		return locks.RolledBack, err
	}
	own, err := s.begin(ctx, opts)
	if err != nil {
		return locks.RolledBack, dberror.Wrap(ctx, "bunstore: begin a transaction", err)
	}
	tx, err := s.Tx(own.handle)
	if err != nil {
		_, err = own.end(err)
		return locks.RolledBack, err
	}
	returned := false
	defer func() {
		if !returned { // fn panicked, or ended its goroutine: a test's Fatal
			outcome, _ = own.end(errors.New("the function did not return"))
		}
		tx.End(outcome)
	}()
	err = fn(ctx, tx)
	if err == nil {
		err = tx.alive(ctx)
	}
	returned = true
	failed := err
	if outcome, err = own.end(failed); err != nil && (failed == nil || dberror.IsRetryable(err)) {
		err = dberror.Wrap(ctx, "bunstore: transaction", err)
	}
	return outcome, err
}
