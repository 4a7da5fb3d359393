package bench_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// BenchmarkNotify is two hundred writers, each of whose commits notifies (by-hand), and the same without (rowlease): PostgreSQL puts the
// commits that notify one after another, and so the disk's time for each. That is why a release notifies only when somebody
// waits.
func BenchmarkNotify(b *testing.B) {
	const writers = 200
	server := postgres.Start(b, postgres.Durable(), postgres.Setting("max_connections", "250"))
	sqldb, err := sql.Open("pgx", server.Database(b))
	db := migrated(b, sqldb, err, pgdialect.New())
	db.SetMaxOpenConns(writers)
	db.SetMaxIdleConns(writers)
	accounts(b, db, writers)
	commit := func(statement string) work {
		return func(ctx context.Context, client, _ int) error {
			_, err := db.DB.ExecContext(ctx, statement, client)
			return err
		}
	}
	compare(b, writers, commit(deposit(db)), commit(`WITH told AS MATERIALIZED (SELECT pg_notify('nobody_listens', $1::int::text))
		UPDATE accounts SET balance = balance + 1 FROM told WHERE id = $1`))
}
