package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/locks"
)

// kindAccount is the row that each kind changes, a client's own.
type kindAccount struct {
	bun.BaseModel `bun:"table:accounts"`

	ID      int64 `bun:",pk"`
	Balance int64
	Version int64
}

// BenchmarkKinds is one small job, a row changed under the lock, with each kind of docs/choosing.md; and, by hand, a bare
// transaction that changes the row under no lock but its own.
func BenchmarkKinds(b *testing.B) {
	sqldb, err := sql.Open("pgx", durable(b).Database(b))
	db := migrated(b, sqldb, err, pgdialect.New())
	const most = 16
	db.SetMaxOpenConns(2*most + 1) // a session lock keeps one beside the one that works
	db.SetMaxIdleConns(2*most + 1)
	accounts(b, db, most+1)
	for _, column := range []string{"version", "fence_token"} {
		if _, err := db.ExecContext(b.Context(), "ALTER TABLE accounts ADD COLUMN ? bigint NOT NULL DEFAULT 0", bun.Ident(column)); err != nil {
			b.Fatal(err)
		}
	}
	for _, kind := range kinds(b, db, most+1) {
		for _, clients := range []int{1, most} {
			b.Run(fmt.Sprintf("%s/clients=%d", kind.name, clients), func(b *testing.B) {
				compare(b, clients, func(ctx context.Context, client, n int) error {
					return kind.work(ctx, client+1, n) // a model's key 0 is none
				}, func(ctx context.Context, client, _ int) error {
					return bare(ctx, db, func(tx bun.IDB) error { return write(ctx, tx, deposit(db), client+1) })
				})
			})
		}
	}
}

type kind struct {
	name string
	work work
}

func kinds(b *testing.B, db *bun.DB, clients int) []kind {
	b.Helper()
	locker, store := newLocker(b, db), newStore(b, db)
	sessions, err := advisory.New(db)
	if err != nil {
		b.Fatal(err)
	}
	held := make([]*locks.Lease, clients)
	for client := range held {
		if held[client], err = locker.TryAcquire(b.Context(), resource(client, -1), locks.WithTTL(time.Hour)); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { held[client].Release(context.Background()) })
	}
	statement := deposit(db)
	alone := func(ctx context.Context, client int) error {
		_, err := db.DB.ExecContext(ctx, statement, client)
		return err
	}
	return []kind{
		{"lease", func(ctx context.Context, client, n int) error {
			return locker.Do(ctx, resource(client, n), func(ctx context.Context, _ *locks.Lease) error { return alone(ctx, client) })
		}},
		{"guard", func(ctx context.Context, client, _ int) error {
			return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
				if err := held[client].GuardTx(ctx, tx); err != nil {
					return err
				}
				return write(ctx, tx.Unwrap(), statement, client)
			})
		}},
		{"lease-and-guard", func(ctx context.Context, client, n int) error {
			return locker.Do(ctx, resource(client, n), func(ctx context.Context, lease *locks.Lease) error {
				return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
					if err := lease.GuardTx(ctx, tx); err != nil {
						return err
					}
					return write(ctx, tx.Unwrap(), statement, client)
				})
			})
		}},
		{"acquire-tx", func(ctx context.Context, client, n int) error {
			return locker.DoTx(ctx, store, resource(client, n), func(ctx context.Context, tx locks.Tx, _ *locks.Lease) error {
				return write(ctx, bunstore.TxFrom(tx).Unwrap(), statement, client)
			})
		}},
		{"acquire-all-2", func(ctx context.Context, client, n int) error {
			leases, err := locker.AcquireAll(ctx, []string{resource(client, n), resource(client, n+1)})
			if err != nil {
				return err
			}
			if err := alone(ctx, client); err != nil {
				return err
			}
			return leases.Release(ctx)
		}},
		{"row", inTx(db, func(ctx context.Context, tx bun.Tx, client int) error {
			if err := rowlock.Lock(ctx, tx, &kindAccount{ID: int64(client)}, rowlock.ForNoKeyUpdate()); err != nil {
				return err
			}
			return write(ctx, tx, statement, client)
		})},
		{"advisory-tx", inTx(db, func(ctx context.Context, tx bun.Tx, client int) error {
			if err := advisory.LockTx(ctx, tx, resource(client, 0)); err != nil {
				return err
			}
			return write(ctx, tx, statement, client)
		})},
		{"advisory-session", func(ctx context.Context, client, n int) error {
			session, err := sessions.TryLock(ctx, resource(client, n))
			if err != nil {
				return err
			}
			if err := alone(ctx, client); err != nil {
				return err
			}
			return session.Unlock(ctx)
		}},
		{"optimistic", func(ctx context.Context, client, _ int) error {
			account := kindAccount{ID: int64(client)}
			if err := db.NewSelect().Model(&account).WherePK().Scan(ctx); err != nil {
				return err
			}
			account.Balance++
			return optimistic.Update(ctx, db, &account)
		}},
		{"fence", func(ctx context.Context, client, _ int) error {
			account := kindAccount{ID: int64(client)}
			return fence.Update(ctx, db, &account, held[client].Token(), fence.WithSet("balance = balance + ?", 1))
		}},
	}
}

func inTx(db *bun.DB, do func(ctx context.Context, tx bun.Tx, client int) error) work {
	return func(ctx context.Context, client, _ int) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return do(ctx, tx, client) })
	}
}
