package bunstore

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore/internal/bounded"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/pooler"
)

// Migrate brings the lease table up to date, and does nothing when it is. It is what a program calls at its start,
// on a database that it can make tables in: ten replicas that start at once wait for one another and all succeed.
//
// It runs in one READ COMMITTED transaction on one connection, whatever the session's default, under an advisory lock
// of that transaction, so that it works with a pool of one connection and behind a pooler (SQLite: BEGIN IMMEDIATE,
// waiting for the file's writer). Either all of it happened or nothing, and it can be run again. It ends with the
// context, and after a minute when that has no deadline.
//
// What it applied it keeps in "<table>_migrations", a table of its own in the shape of bun's, and not in the host's
// bun_migrations: a host's rollback never takes the leases with it, and a Migrator with that table name can show what
// is applied. A host that runs [RegisterMigrations] needs no Migrate; both together do no harm.
//
// When everything is applied it only reads, so that a role which cannot make tables may call it, too: it must be able to
// SELECT from "<table>_migrations".
//
// Errors: [locks.ErrInvalid] for an option, a nil db or another dialect; the database's, with what was being done.
func Migrate(ctx context.Context, db *bun.DB, options ...MigrationOption) error {
	c, err := newMigrationConfig(options)
	if err == nil {
		err = c.table.validDB(db)
	}
	if err != nil {
		return err
	}
	return migrateFault("migrate", c.table, abandonable(ctx, migrationLimit, func(ctx context.Context) error {
		// A look without the lock, so that the usual start of a replica waits for nobody. Whatever it fails with,
		// the transaction meets it again.
		if group, missing, err := c.state(ctx, db, db.Dialect().Name()); err == nil && group > 0 && len(missing) == 0 {
			return nil
		}
		return migrationTx(ctx, db, func(ctx context.Context, tx rawQuerier) error {
			return c.migrate(ctx, tx, db.Dialect().Name())
		})
	}))
}

// Rollback takes back what the last [Migrate] that found something to do has applied, and does nothing when nothing is
// applied. The leases are gone then; the tokens are kept, so that Migrate afterwards goes on counting. It runs as
// Migrate does. What a host's Migrator applied, it does not touch.
//
// Errors: as [Migrate].
func Rollback(ctx context.Context, db *bun.DB, options ...MigrationOption) error {
	c, err := newMigrationConfig(options)
	if err == nil {
		err = c.table.validDB(db)
	}
	if err != nil {
		return err
	}
	return migrateFault("roll back", c.table, abandonable(ctx, migrationLimit, func(ctx context.Context) error {
		return migrationTx(ctx, db, func(ctx context.Context, tx rawQuerier) error {
			return c.rollback(ctx, tx, db.Dialect().Name())
		})
	}))
}

func migrateFault(verb string, t table, err error) error {
	switch {
	case err == nil:
		return nil
	case pooler.LostStatement(err):
		return fmt.Errorf("bunstore: %s table %s: %s: %w", verb, t, lostStatementAdvice, err)
	}
	return fmt.Errorf("bunstore: %s table %s: %w", verb, t, err)
}

func (c migrationConfig) migrate(ctx context.Context, tx rawQuerier, name dialect.Name) error {
	record := postgresRecord(c.table)
	if name == dialect.SQLite {
		record = sqliteRecord(c.table)
	}
	group, missing, err := c.state(ctx, tx, name)
	switch {
	case err != nil:
		return err
	case group > 0 && len(missing) == 0:
		return nil
	}
	if err := rawExec(ctx, tx, record); err != nil {
		return err
	}
	for _, s := range missing {
		if err := rawExec(ctx, tx, s.script(c.table, name).up...); err != nil {
			return fmt.Errorf("%s: %w", c.name(s), err)
		}
		// The record has it already when the table itself was dropped by hand.
		forget := fmt.Sprintf("DELETE FROM %s WHERE name = %s", c.table.migrationsQuoted(), c.literal(s, name))
		mark := fmt.Sprintf("INSERT INTO %s (name, group_id) VALUES (%s, %d)", c.table.migrationsQuoted(), c.literal(s, name), group+1)
		if err := rawExec(ctx, tx, forget, mark); err != nil {
			return err
		}
	}
	return nil
}

func (c migrationConfig) rollback(ctx context.Context, tx rawQuerier, name dialect.Name) error {
	applied, err := c.applied(ctx, tx, name)
	if err != nil {
		return err
	}
	var last int64
	for _, s := range steps {
		last = max(last, applied[c.name(s)])
	}
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		if group, ok := applied[c.name(s)]; !ok || group != last {
			continue
		}
		if err := rawExec(ctx, tx, s.script(c.table, name).down...); err != nil {
			return fmt.Errorf("%s: %w", c.name(s), err)
		}
		forget := fmt.Sprintf("DELETE FROM %s WHERE name = %s", c.table.migrationsQuoted(), c.literal(s, name))
		if err := rawExec(ctx, tx, forget); err != nil {
			return err
		}
	}
	return nil
}

func (c migrationConfig) literal(s step, name dialect.Name) string {
	if name == dialect.SQLite {
		return quoteSQLiteLiteral(c.name(s))
	}
	return quoteLiteral(c.name(s))
}

// state returns the number of the last group that was applied, and the steps that are missing: also those whose table is
// not there, whatever the record says.
func (c migrationConfig) state(ctx context.Context, q rawQuerier, name dialect.Name) (group int64, missing []step, err error) {
	applied, err := c.applied(ctx, q, name)
	if err != nil {
		return 0, nil, err
	}
	for _, s := range steps {
		made := s.makes(c.table)
		exists, err := c.exists(ctx, q, name, made.quoted(), made.name)
		if err != nil {
			return 0, nil, err
		}
		if _, ok := applied[c.name(s)]; !ok || !exists {
			missing = append(missing, s)
		}
	}
	for _, g := range applied {
		group = max(group, g)
	}
	return group, missing, nil
}

// applied returns what the record has, by name, with the group in which it was applied; nothing when there is none.
func (c migrationConfig) applied(ctx context.Context, q rawQuerier, name dialect.Name) (map[string]int64, error) {
	exists, err := c.exists(ctx, q, name, c.table.migrationsQuoted(), c.table.name+"_migrations")
	if err != nil || !exists {
		return nil, err
	}
	applied := map[string]int64{}
	var key string
	var group int64
	err = rawQuery(ctx, q, "SELECT name, group_id FROM "+c.table.migrationsQuoted(), func() { applied[key] = group }, &key, &group)
	return applied, err
}

func (c migrationConfig) exists(ctx context.Context, q rawQuerier, dialectName dialect.Name, quoted, plain string) (exists bool, err error) {
	statement := postgresExists(quoted)
	if dialectName == dialect.SQLite {
		statement = sqliteExists(plain)
	}
	err = rawQuery(ctx, q, statement, nil, &exists)
	return exists, err
}

// abandonable runs work under a context that ends with ctx, or after limit when ctx has no deadline, and returns
// when it ends also if a driver does not come back: then work is left behind, on its goroutine, to fail.
func abandonable(ctx context.Context, limit time.Duration, work func(context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// A driver that heeds its context needs a moment to say so, and to roll back.
	patience, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, giveUp) })()
	_, err := bounded.Do(patience, func() (struct{}, error) { return struct{}{}, work(ctx) }, func(struct{}) {})
	switch ended := dberror.ContextEnd(ctx); {
	case err == nil || ended == nil:
		return err
	case patience.Err() != nil:
		return ended
	default:
		return fmt.Errorf("%w: %w", ended, err)
	}
}
