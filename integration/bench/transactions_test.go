package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// accounts makes a table with a row for each client.
func accounts(b *testing.B, db *bun.DB, clients int) {
	b.Helper()
	if _, err := db.ExecContext(b.Context(), "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)"); err != nil {
		b.Fatal(err)
	}
	for client := range clients {
		if _, err := db.ExecContext(b.Context(), "INSERT INTO accounts VALUES (?, 0)", client); err != nil {
			b.Fatal(err)
		}
	}
}

// deposit is the host's own statement, by placeholders.
func deposit(db *bun.DB) string {
	if db.Dialect().Name() == dialect.PG {
		return "UPDATE accounts SET balance = balance + 1 WHERE id = $1"
	}
	return "UPDATE accounts SET balance = balance + 1 WHERE id = ?1"
}

// BenchmarkGuard is a transaction that guards a lease, writes a row and commits, and the same transaction without the
// guard, by hand.
func BenchmarkGuard(b *testing.B) {
	for _, database := range databases {
		for _, clients := range clientsOf(database.name) {
			b.Run(fmt.Sprintf("%s/clients=%d", database.name, clients), func(b *testing.B) {
				db := database.open(b)
				accounts(b, db, clients)
				locker, store := newLocker(b, db), newStore(b, db)
				statement := deposit(db)
				leases := make([]*locks.Lease, clients)
				for client := range leases {
					lease, err := locker.TryAcquire(b.Context(), resource(client, 0), locks.WithTTL(time.Hour))
					if err != nil {
						b.Fatal(err)
					}
					defer lease.Release(context.Background())
					leases[client] = lease
				}
				compare(b, clients, func(ctx context.Context, client, _ int) error {
					return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
						if err := leases[client].GuardTx(ctx, tx); err != nil {
							return err
						}
						return write(ctx, tx.Unwrap(), statement, client)
					})
				}, func(ctx context.Context, client, _ int) error {
					return bare(ctx, db, func(tx bun.IDB) error { return write(ctx, tx, statement, client) })
				})
			})
		}
	}
}

// BenchmarkAcquireTx is a transaction that acquires a lease, writes a row, releases the lease and commits; and, by hand,
// the store's bare acquire and release around the same transaction.
func BenchmarkAcquireTx(b *testing.B) {
	for _, database := range databases {
		for _, clients := range clientsOf(database.name) {
			b.Run(fmt.Sprintf("%s/clients=%d", database.name, clients), func(b *testing.B) {
				db := database.open(b)
				accounts(b, db, clients)
				locker, store := newLocker(b, db), newStore(b, db)
				statement := deposit(db)
				compare(b, clients, func(ctx context.Context, client, n int) error {
					return locker.TryDoTx(ctx, store, resource(client, n), func(ctx context.Context, tx locks.Tx, _ *locks.Lease) error {
						return write(ctx, bunstore.TxFrom(tx).Unwrap(), statement, client)
					})
				}, func(ctx context.Context, client, n int) error {
					lock, err := store.Acquire(ctx, locks.Request{Resource: resource(client, n), Owner: "o", Attempt: fmt.Sprint(n), TTL: time.Hour})
					if err != nil {
						return err
					}
					if err := bare(ctx, db, func(tx bun.IDB) error { return write(ctx, tx, statement, client) }); err != nil {
						return err
					}
					return store.Release(ctx, lock.Grant())
				})
			})
		}
	}
}

// clientsOf: SQLite has one writer, so that sixteen show only its queue.
func clientsOf(database string) []int {
	if database == "sqlite-modernc" || database == "sqlite-mattn" {
		return []int{1}
	}
	return []int{1, 16}
}

// bare is a transaction by hand; on SQLite one that begins as a writer.
func bare(ctx context.Context, db *bun.DB, work func(bun.IDB) error) error {
	if db.Dialect().Name() == dialect.PG {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := work(tx); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := work(conn); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	return err
}

func write(ctx context.Context, handle bun.IDB, statement string, client int) error {
	var err error
	switch h := handle.(type) {
	case bun.Tx:
		_, err = h.Tx.ExecContext(ctx, statement, client)
	case bun.Conn:
		_, err = h.Conn.ExecContext(ctx, statement, client)
	default:
		err = fmt.Errorf("no transaction: %T", handle)
	}
	return err
}
