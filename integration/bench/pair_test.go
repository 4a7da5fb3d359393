package bench_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// resource is one of a thousand for each client, so that clients do not contend.
func resource(client, n int) string { return fmt.Sprintf("bench:%d:%d", client, n%1000) }

// answer is where a hand-written call scans a statement's answer to.
type answer struct {
	what, resource, owner                 string
	id, token, acquired, expires, remains int64
	metadata                              sql.NullString
}

func (a *answer) of(row *sql.Row) error {
	return row.Scan(&a.what, &a.id, &a.resource, &a.owner, &a.token, &a.acquired, &a.expires, &a.remains, &a.metadata)
}

// BenchmarkPair is an acquire and a release: through locks and bunstore, with renewal, context and all, and the same
// statements on database/sql. On SQLite an acquire is two: the read that a refusal comes from, and the upsert.
func BenchmarkPair(b *testing.B) {
	for _, database := range databases {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/clients=%d", database.name, clients), func(b *testing.B) {
				db := database.open(b)
				read, acquire, release := statements(b, db)
				locker := newLocker(b, db)
				compare(b, clients, func(ctx context.Context, client, n int) error {
					lease, err := locker.TryAcquire(ctx, resource(client, n))
					if err != nil {
						return err
					}
					return lease.Release(ctx)
				}, func(ctx context.Context, client, n int) error {
					var a answer
					r := resource(client, n)
					owner, attempt := fmt.Sprintf("owner-of-some-length-%d", n), fmt.Sprintf("attempt-of-length-%d", n)
					if read != nil {
						if err := a.of(db.DB.QueryRowContext(ctx, read.sql, r)); !errors.Is(err, sql.ErrNoRows) {
							return fmt.Errorf("read: %w", err)
						}
					}
					if err := a.of(db.DB.QueryRowContext(ctx, acquire.sql, r, owner, time.Minute.Microseconds(), nil, attempt)); err != nil {
						return err
					}
					return a.of(db.DB.QueryRowContext(ctx, release.sql, r, owner, a.token))
				})
			})
		}
	}
}

// BenchmarkRefused is a try on a resource that somebody else holds, and a SELECT of the same columns.
func BenchmarkRefused(b *testing.B) {
	for _, database := range databases {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/clients=%d", database.name, clients), func(b *testing.B) {
				db := database.open(b)
				store := newStore(b, db)
				for client := range clients {
					for n := range 1000 {
						if _, err := store.Acquire(b.Context(), locks.Request{Resource: resource(client, n), Owner: "holder", Attempt: "a", TTL: time.Hour}); err != nil {
							b.Fatal(err)
						}
					}
				}
				if _, err := db.DB.ExecContext(b.Context(), "VACUUM"); err != nil {
					b.Fatal(err)
				}
				if _, err := db.DB.ExecContext(b.Context(), "ANALYZE"); err != nil {
					b.Fatal(err)
				}
				locker := newLocker(b, db)
				const columns = "SELECT id, resource, owner, token, acquired_at, expires_at, metadata FROM distributed_locks WHERE resource = "
				placeholder := "?1"
				if db.Dialect().Name().String() == "pg" {
					placeholder = "$1"
				}
				compare(b, clients, func(ctx context.Context, client, n int) error {
					if _, err := locker.TryAcquire(ctx, resource(client, n)); !errors.Is(err, locks.ErrHeld) {
						return fmt.Errorf("err = %w, want held", err)
					}
					return nil
				}, func(ctx context.Context, client, n int) error {
					var a answer
					var acquired, expires any
					return db.DB.QueryRowContext(ctx, columns+placeholder, resource(client, n)).
						Scan(&a.id, &a.resource, &a.owner, &a.token, &acquired, &expires, &a.metadata)
				})
			})
		}
	}
}

func newStore(b *testing.B, db *bun.DB) *bunstore.Store {
	b.Helper()
	store, err := bunstore.New(db)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

func newLocker(b *testing.B, db *bun.DB) *locks.Locker {
	b.Helper()
	locker, err := locks.New(newStore(b, db))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return locker
}
