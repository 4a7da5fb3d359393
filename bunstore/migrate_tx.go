package bunstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore/internal/backoff"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// rawQuerier is bun's handle on a pool, a connection or a transaction. Its hooks see what runs here.
type rawQuerier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// rawExec runs statements one after the other. Each goes through bun's formatter as one literal, since a name may have
// a question mark in it.
func rawExec(ctx context.Context, q rawQuerier, statements ...string) error {
	for _, statement := range statements {
		if _, err := q.ExecContext(ctx, "?", bun.Safe(statement)); err != nil {
			return err
		}
	}
	return nil
}

// rawQuery scans each row into dest and calls each, which may be nil.
func rawQuery(ctx context.Context, q rawQuerier, statement string, each func(), dest ...any) error {
	rows, err := q.QueryContext(ctx, "?", bun.Safe(statement))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // after an error, which is returned
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if each != nil {
			each()
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// inMigration is migrationTx with a time limit, for a migration that the host's Migrator runs.
func inMigration(ctx context.Context, db *bun.DB, work func(context.Context, rawQuerier) error) error {
	return abandonable(ctx, migrationLimit, func(ctx context.Context) error { return migrationTx(ctx, db, work) })
}

// migrationTx runs work in one transaction on one connection while no other migration of leases runs in the database.
func migrationTx(ctx context.Context, db *bun.DB, work func(context.Context, rawQuerier) error) error {
	if db.Dialect().Name() == dialect.SQLite {
		return sqliteMigrationTx(ctx, db, work)
	}
	// READ COMMITTED whatever the default is: each statement must see what the migration before has committed.
	return db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if err := rawExec(ctx, tx, postgresMigrationLock); err != nil {
			return err
		}
		return work(ctx, tx)
	})
}

// sqliteMigrationTx begins as a writer: a transaction that reads first and writes later fails at once when another
// wrote meanwhile, however long the busy timeout is. It waits for the file's writer until the context ends.
func sqliteMigrationTx(ctx context.Context, db *bun.DB, work func(context.Context, rawQuerier) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // back into the pool
	if err := whileBusy(ctx, func() error { return rawExec(ctx, conn, "BEGIN IMMEDIATE") }); err != nil {
		return err
	}
	err = work(ctx, conn)
	if err == nil {
		// In rollback-journal mode a commit waits for readers, and can be tried again.
		err = whileBusy(ctx, func() error { return rawExec(ctx, conn, "COMMIT") })
	}
	if err != nil {
		_ = leaveSQLiteTx(ctx, conn)
	}
	return err
}

// leaveSQLiteTx rolls back. SQLite may have rolled back by itself; if it did not, the connection must not go back into
// the pool.
func leaveSQLiteTx(ctx context.Context, conn bun.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := rawExec(ctx, conn, "ROLLBACK")
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

// whileBusy tries again as long as somebody else has the file, until the context ends.
func whileBusy(ctx context.Context, try func() error) error {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := try()
		if !dberror.IsSQLiteBusy(err) {
			return err
		}
		if backoff.Wait(ctx, pause) != nil {
			return err
		}
	}
}
