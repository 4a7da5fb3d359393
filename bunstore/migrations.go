package bunstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/migrate"

	"github.com/rowlease/rowlease/locks"
)

// MigrationOption is an option of [Migrations], [RegisterMigrations], [Migrate] and [Rollback]. Every [TableOption] is
// one.
type MigrationOption interface {
	applyMigration(*migrationConfig) error
}

type migrationConfig struct {
	table table
	id    string // "" for each step's own
}

type migrationOption func(*migrationConfig) error

func (o migrationOption) applyMigration(c *migrationConfig) error { return o(c) }

// WithMigrationID gives the migrations another dated id, 1 to 14 digits, to put them where they belong among the host's:
// after the one that makes the schema, say. All of them get it, and differ by what follows the table's name:
// "<id>_distributed_locks", "<id>_distributed_locks_waiters", and so on. bun runs a set in the order of its names. The default is
// one date for each, from 20261130000001 on. Once applied somewhere the id must stay: under another one they run again
// (which does no harm).
func WithMigrationID(id string) MigrationOption {
	return migrationOption(func(c *migrationConfig) error {
		if !migrationID.MatchString(id) {
			return &locks.InvalidError{Field: "migration id", Reason: fmt.Sprintf("must be 1 to 14 digits, got %q", id)}
		}
		c.id = id
		return nil
	})
}

var migrationID = regexp.MustCompile(`^[0-9]{1,14}$`)

func newMigrationConfig(options []MigrationOption) (migrationConfig, error) {
	c := migrationConfig{table: table{name: DefaultTable}}
	for _, option := range options {
		if option == nil {
			return c, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option.applyMigration(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// step is one migration: frozen SQL for each dialect, never a living model.
type step struct {
	id, comment      string
	suffix           string            // of its name, so that a host's one id ([WithMigrationID]) keeps the steps apart and in order
	makes            func(table) table // the table that is there when it is applied
	postgres, sqlite func(table) script
	register         func(set *migrate.Migrations, up, down migrate.MigrationFunc) error
}

// script is what a step runs, each way in one transaction and idempotent.
type script struct{ up, down []string }

// steps is every migration there is, in order. What was released is never changed, only added to.
var steps = []step{leaseTable, waiterTable, shareTable}

// name is what bun knows the step by. The table is part of it, so that two tables fit into one host's set, and so that
// no file of the host, whose names are digits alone, can be the same.
func (c migrationConfig) name(s step) string {
	id := s.id
	if c.id != "" {
		id = c.id
	}
	return id + "_" + c.table.String() + s.suffix
}

func (s step) script(t table, name dialect.Name) script {
	if name == dialect.PG {
		return s.postgres(t)
	}
	return s.sqlite(t)
}

// migration is the step as bun has it.
func (c migrationConfig) migration(s step) migrate.Migration {
	run := func(pick func(script) []string) migrate.MigrationFunc {
		return func(ctx context.Context, db *bun.DB) error {
			if err := c.table.validDB(db); err != nil {
				return err
			}
			return inMigration(ctx, db, func(ctx context.Context, tx rawQuerier) error {
				return rawExec(ctx, tx, pick(s.script(c.table, db.Dialect().Name()))...)
			})
		}
	}
	up := run(func(s script) []string { return s.up })
	down := run(func(s script) []string { return s.down })

	set := migrate.NewMigrations()
	if s.register(set, up, down) != nil || len(set.Sorted()) != 1 {
		// A build that hides file names from the program: the host's hooks do not see this migration then.
		set = migrate.NewMigrations()
		set.Add(migrate.Migration{
			Name: s.id,
			Up:   func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error { return up(ctx, m.DB()) },
			Down: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error { return down(ctx, m.DB()) },
		})
	}
	migration := set.Sorted()[0]
	migration.Name, migration.Comment = c.name(s), s.comment
	return migration
}

// Migrations returns the migrations of the lease table, and of those that belong to it, as a set of their own, for a host that runs bun's Migrator on
// it: give that one a table of its own with migrate.WithTableName, so that neither set finds the other's migrations
// missing. [Migrate] is the runner that needs no care.
//
// Each migration runs in one READ COMMITTED transaction, whatever the session's default is, under an advisory lock
// (SQLite: BEGIN IMMEDIATE, waiting for the file's writer), and is idempotent: ten replicas can run it at once, a failed one
// leaves nothing behind. It ends with the context, and after a minute when that has no deadline. Down drops the leases
// and keeps the tokens: up again goes on counting.
//
// A failed up can be run again with no more ado under migrate.WithMarkAppliedOnSuccess(true). Without it bun has marked
// the migration as applied before it ran, and will not run it again: call the Migrator's Rollback first, which
// unmarks the failed group and runs the downs of what it had marked.
//
// The dialect is that of the database the set is run on; a run on any but PostgreSQL's and SQLite's fails before it
// changes anything. Errors: [locks.ErrInvalid] for an option.
func Migrations(options ...MigrationOption) (*migrate.Migrations, error) {
	set := migrate.NewMigrations()
	if err := RegisterMigrations(set, options...); err != nil {
		return nil, err
	}
	return set, nil
}

// RegisterMigrations adds the migrations of the lease table to the host's set, to be run with the host's own by the
// host's Migrator, before or after the set discovers its files. What [Migrations] says of each migration holds
// here. Register each table once; the names, "20261130000001_distributed_locks" for one, tell tables apart.
//
// bun marks what it runs in bun_migrations with no lock: ten replicas that start at once all succeed in our migrations,
// but may each mark them, and their Migrator.Init races ([Migrate] has neither trouble). So a host that migrates at the
// start of each replica should put a lock around its run.
//
// Errors: [locks.ErrInvalid] for an option, for a nil set, and for a name that the set already has. Then nothing
// was added.
func RegisterMigrations(host *migrate.Migrations, options ...MigrationOption) error {
	c, err := newMigrationConfig(options)
	if err != nil {
		return err
	}
	if host == nil {
		return &locks.InvalidError{Field: "migrations", Reason: "must not be nil"}
	}
	known := host.Sorted()
	for _, s := range steps {
		name := c.name(s)
		if slices.ContainsFunc(known, func(m migrate.Migration) bool { return m.Name == name }) {
			return &locks.InvalidError{Field: "migrations", Reason: fmt.Sprintf("already have %s: register each table once", name)}
		}
	}
	for _, s := range steps {
		host.Add(c.migration(s))
	}
	return nil
}

// migrationLimit ends a migration whose caller gave no deadline.
const migrationLimit = time.Minute
