package main

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/migrate"

	"github.com/rowlease/rowlease/bunstore"
)

// createPayments is SQL that both databases read, and that stays as it is whatever becomes of the model.
const createPayments = `CREATE TABLE payments (
	id text PRIMARY KEY,
	idempotency_key text NOT NULL UNIQUE,
	amount bigint NOT NULL,
	created_at timestamptz NOT NULL
)`

// migrations are the application's own, and the lease table's among them: one run, one history, one rollback.
func migrations() (*migrate.Migrations, error) {
	set := migrate.NewMigrations()
	set.Add(migrate.Migration{
		Name:    "20260501090000",
		Comment: "payments",
		Up: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().ExecContext(ctx, createPayments)
			return err
		},
		Down: func(ctx context.Context, m *migrate.Migrator, _ *migrate.Migration) error {
			_, err := m.DB().ExecContext(ctx, `DROP TABLE payments`)
			return err
		},
	})
	return set, bunstore.RegisterMigrations(set)
}

// migrateDatabase brings the database up to date. It is for one process at a time: with several replicas, migrate in a
// step of the deployment instead of at each one's start.
func migrateDatabase(ctx context.Context, db *bun.DB) error {
	set, err := migrations()
	if err != nil {
		return err
	}
	migrator := migrate.NewMigrator(db, set, migrate.WithMarkAppliedOnSuccess(true))
	if err := migrator.Init(ctx); err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	if _, err := migrator.Migrate(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
