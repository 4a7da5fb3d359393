package bunstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/migrate"

	"github.com/rowlease/rowlease/locks"
)

func hostFiles() fstest.MapFS {
	return fstest.MapFS{
		"20200101000000_first.up.sql":     {Data: []byte("CREATE TABLE first (x integer)")},
		"20200101000000_first.down.sql":   {Data: []byte("DROP TABLE first")},
		"20261130000001_same.tx.up.sql":   {Data: []byte("CREATE TABLE same (x integer)")}, // our own id
		"20261130000001_same.tx.down.sql": {Data: []byte("DROP TABLE same")},
		"20990101000000_last.up.sql":      {Data: []byte("CREATE TABLE last AS SELECT count(*) AS n FROM distributed_locks")},
		"20990101000000_last.down.sql":    {Data: []byte("DROP TABLE last")},
	}
}

func TestRegisterMigrationsIntoAHostsSet(t *testing.T) {
	for _, first := range []string{"ours", "files"} {
		t.Run(first+" first", func(t *testing.T) {
			ctx := t.Context()
			db := newSQLiteDB(t)
			set := migrate.NewMigrations()
			register := func() {
				t.Helper()
				if err := errors.Join(RegisterMigrations(set), RegisterMigrations(set, WithTable("more_locks"), WithMigrationID("1"))); err != nil {
					t.Fatal(err)
				}
			}
			if first == "ours" {
				register()
			}
			if err := set.Discover(hostFiles()); err != nil {
				t.Fatal(err)
			}
			if first == "files" {
				register()
			}
			var hooked []string
			host := migrate.NewMigrator(db, set, migrate.WithMarkAppliedOnSuccess(true),
				migrate.BeforeMigration(func(_ context.Context, _ bun.IConn, m *migrate.Migration) error {
					hooked = append(hooked, m.String())
					return nil
				}))
			if err := host.Init(ctx); err != nil {
				t.Fatal(err)
			}
			want := []string{
				"1_more_locks_lease_table", "1_more_locks_shares_share_table", "1_more_locks_waiters_waiter_table", "20200101000000_first", "20261130000001_same",
				"20261130000001_distributed_locks_lease_table", "20261130000002_distributed_locks_waiters_waiter_table",
				"20261130000003_distributed_locks_shares_share_table", "20990101000000_last",
			}
			for round := range 2 {
				hooked = nil
				if _, err := host.Migrate(ctx); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(hooked, "\n"); got != strings.Join(want, "\n") {
					t.Errorf("round %d ran, as the host's hook saw it:\n%s\nwant\n%s", round, got, strings.Join(want, "\n"))
				}
				if token := grantSQLite(t, db, table{name: "more_locks"}, "a"); token != int64(round+1) {
					t.Errorf("round %d: token %d", round, token)
				}
				if _, err := check(ctx, db, table{name: DefaultTable}); err != nil {
					t.Error(err)
				}
				if err := Migrate(ctx, db); err != nil { // besides, it does no harm
					t.Error(err)
				}
				if _, err := host.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				if n := numberOf(t, db, `SELECT count(*) FROM sqlite_master WHERE name IN ('distributed_locks', 'more_locks', 'first', 'last', 'same')`); n != 0 {
					t.Errorf("%d tables are left after the rollback", n)
				}
			}
		})
	}
}

// Without WithMarkAppliedOnSuccess bun has marked a failed migration: Rollback, as documented, makes it run again.
func TestRegisterMigrationsFailedUpInAHostsSet(t *testing.T) {
	for _, onSuccess := range []bool{true, false} {
		t.Run(fmt.Sprintf("MarkAppliedOnSuccess=%t", onSuccess), func(t *testing.T) {
			ctx := t.Context()
			db := newSQLiteDB(t)
			set, err := Migrations()
			if err != nil {
				t.Fatal(err)
			}
			host := migrate.NewMigrator(db, set, migrate.WithMarkAppliedOnSuccess(onSuccess))
			if err := host.Init(ctx); err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, `CREATE VIEW distributed_locks_tokens AS SELECT 1 AS id, 0 AS last`)
			if _, err := host.Migrate(ctx); err == nil {
				t.Fatal("Migrate succeeded beside a view of the counter's name")
			}
			mustExec(t, db, `DROP VIEW distributed_locks_tokens`)
			if !onSuccess {
				if _, err := host.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := host.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := check(ctx, db, table{name: DefaultTable}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRegisterMigrationsRefuses(t *testing.T) {
	set, err := Migrations()
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"the same table twice": RegisterMigrations(set),
		"no set":               RegisterMigrations(nil),
		"an id with letters":   RegisterMigrations(migrate.NewMigrations(), WithMigrationID("2026x")),
		"no id":                RegisterMigrations(migrate.NewMigrations(), WithMigrationID("")),
		"a nil option":         RegisterMigrations(migrate.NewMigrations(), nil),
		"no table name":        RegisterMigrations(migrate.NewMigrations(), WithTable("")),
		"no db":                Migrate(t.Context(), nil),
		"another schema":       Migrate(t.Context(), newSQLiteDB(t), WithSchema("app")),
	} {
		if !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	if err := RegisterMigrations(set); err == nil || !strings.Contains(err.Error(), "20261130000001_distributed_locks") {
		t.Errorf("the error does not name what is there already: %v", err)
	}
	if n := len(set.Sorted()); n != len(steps) {
		t.Errorf("%d migrations, want %d", n, len(steps))
	}
	for _, option := range []MigrationOption{WithTable("other"), WithSchema("main")} {
		if err := RegisterMigrations(set, option); err != nil {
			t.Errorf("another table: %v", err)
		}
	}
}

// The record is in bun's shape: a Migrator with that table's name shows what is applied.
func TestMigrateRecordIsBuns(t *testing.T) {
	ctx := t.Context()
	db := newSQLiteDB(t)
	if err := Migrate(ctx, db); err != nil {
		t.Fatal(err)
	}
	set, err := Migrations()
	if err != nil {
		t.Fatal(err)
	}
	shown, err := migrate.NewMigrator(db, set, migrate.WithTableName("distributed_locks_migrations")).MigrationsWithStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range shown {
		if !m.IsApplied() || m.GroupID != 1 || time.Since(m.MigratedAt).Abs() > time.Minute {
			t.Errorf("%s: applied %t, group %d, at %v", m, m.IsApplied(), m.GroupID, m.MigratedAt)
		}
	}
}

// A migration whose file name is hidden from the program runs, without the host's hooks.
func TestMigrationWithoutAFileName(t *testing.T) {
	c, err := newMigrationConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	set := migrate.NewMigrations()
	for _, s := range steps {
		s.register = func(*migrate.Migrations, migrate.MigrationFunc, migrate.MigrationFunc) error {
			return errors.New("no name")
		}
		set.Add(c.migration(s))
	}
	db := newSQLiteDB(t)
	host := migrate.NewMigrator(db, set)
	if err := host.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := check(t.Context(), db, c.table); err != nil {
		t.Error(err)
	}
}
