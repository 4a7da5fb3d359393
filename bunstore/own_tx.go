package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore/internal/bounded"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// ownTx is a transaction that the store has begun by itself, and so ends. Each step comes back within the call limit,
// also with a driver that hangs.
type ownTx struct {
	ctx              context.Context //nolint:containedctx // the transaction's: it is not committed once that has ended
	handle           bun.IDB
	limit            time.Duration
	commit, rollback func() error
	free             func() // after the end
}

// begin begins a transaction that outlives ctx until it is ended here. Were it ctx's, database/sql would roll it back on a
// goroutine of its own, and whoever was told of the end could meet it still at work.
func (s *Store) begin(ctx context.Context, opts *sql.TxOptions) (*ownTx, error) {
	if s.db.Dialect().Name() == dialect.SQLite {
		return s.beginImmediate(ctx, opts)
	}
	limited, cancel := context.WithTimeout(ctx, s.config.callLimit)
	defer cancel()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	tx, err := bounded.Do(limited, func() (bun.Tx, error) { return s.db.BeginTx(life, opts) },
		func(tx bun.Tx) { _ = tx.Rollback() }) // begun after all, for nobody
	if err != nil {
		end()
		return nil, err
	}
	return &ownTx{ctx, tx, s.config.callLimit, tx.Commit, tx.Rollback, end}, nil
}

// beginImmediate begins as a writer, so that nothing that the transaction does can meet the snapshot conflict. It
// has a connection of its own, since database/sql knows no way to say IMMEDIATE that all drivers share.
func (s *Store) beginImmediate(ctx context.Context, opts *sql.TxOptions) (*ownTx, error) {
	if opts != nil && opts.ReadOnly {
		return nil, &locks.InvalidError{Field: "transaction", Reason: "must not be read-only: a guard writes"}
	}
	// Bounded, since whoever begins a second transaction with the only connection in the first would wait for ever.
	called, cancel := context.WithTimeout(ctx, s.config.callLimit)
	defer cancel()
	conn, err := s.db.Conn(called)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.config.busyLimit)
	defer cancel()
	// The statements themselves run without the context: see sqlite.unlessBusy.
	detached := context.WithoutCancel(ctx)
	if err := whileBusy(limited, func() error { return rawExec(detached, conn, "BEGIN IMMEDIATE") }); err != nil {
		_ = conn.Close() // back into the pool
		return nil, err
	}
	return &ownTx{
		ctx:    ctx,
		handle: conn,
		limit:  s.config.callLimit,
		commit: func() error {
			// In rollback-journal mode a commit waits for readers, and can be tried again.
			limited, cancel := context.WithTimeout(ctx, s.config.busyLimit)
			defer cancel()
			err := whileBusy(limited, func() error { return rawExec(detached, conn, "COMMIT") })
			if err != nil {
				_ = leaveSQLiteTx(detached, conn) // if not by itself, the connection is closed, which rolls back too
				err = &rolledBackError{err}
			}
			return err
		},
		rollback: func() error { return leaveSQLiteTx(detached, conn) },
		free:     func() { _ = conn.Close() },
	}, nil
}

// end commits where fn's error is nil, and says how the transaction ended.
func (t *ownTx) end(failed error) (locks.Outcome, error) {
	if failed == nil {
		failed = t.ctx.Err()
	}
	step := t.commit
	if failed != nil {
		step = t.rollback
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), t.limit)
	defer cancel()
	_, err := bounded.Do(limited, func() (struct{}, error) {
		defer t.free() // not before the step has come back: it is still at work on the connection
		return struct{}{}, step()
	}, func(struct{}) {})
	if failed != nil {
		return locks.RolledBack, failed // what failed before is the news
	}
	return OutcomeOf(err), err
}

// OutcomeOf tells from the error that a commit returned how the transaction ended: [locks.Committed] for nil,
// [locks.RolledBack] when the database said so, [locks.Unknown] when its answer is missing, or when it may yet be
// committed: SQLite keeps a transaction open whose commit was busy.
//
// Beware of drivers that return nil for the commit of a transaction that an earlier error had aborted, as bun's pgdriver
// does: who goes on after an error of a statement knows better.
func OutcomeOf(commit error) locks.Outcome {
	state := dberror.SQLState(commit)
	var rolledBack *rolledBackError
	switch {
	case commit == nil:
		return locks.Committed
	case errors.As(commit, &rolledBack):
		return locks.RolledBack
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"), state == "40003": // the connection ended under it
		return locks.Unknown
	case state != "":
		return locks.RolledBack
	case dberror.SQLiteCode(commit) != 0 && !dberror.IsSQLiteBusy(commit):
		return locks.RolledBack
	case strings.Contains(commit.Error(), "commit unexpectedly resulted in rollback"): // pgx has no code for it
		return locks.RolledBack
	}
	return locks.Unknown
}

// rolledBackError is the fault of a commit that was followed by a rollback.
type rolledBackError struct{ error }

func (e *rolledBackError) Unwrap() error { return e.error }
