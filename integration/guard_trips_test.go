package integration_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore"
)

// openWithoutPings is open with pgx, which else asks a connection that was idle for a second whether it lives.
func openWithoutPings(tb testing.TB, dsn string) *bun.DB {
	tb.Helper()
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	never := func(context.Context, stdlib.ShouldPingParams) bool { return false }
	db := bun.NewDB(stdlib.OpenDB(*config, stdlib.OptionShouldPing(never)), pgdialect.New())
	tb.Cleanup(func() { db.Close() })
	return db
}

// A guard costs a transaction one round trip, once its statement is prepared.
func TestAGuardIsOneRoundTrip(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		p, proxied := through(t, dsn)
		db := open(t, driver, proxied)
		if driver == "pgx" {
			db = openWithoutPings(t, proxied)
		}
		db.SetMaxOpenConns(1)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		grant := acquire(t, store, request("job:42", "w1")).Grant()
		trips := func(guards int) int {
			before := p.Trips()
			if err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
				for range guards {
					if err := tx.Guard(ctx, grant); err != nil {
						return err
					}
				}
				_, err := tx.ExecContext(ctx, "SELECT 1")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return p.Trips() - before
		}
		trips(1) // the first one may prepare
		if bare, guarded, twice := trips(0), trips(1), trips(2); bare != 3 || guarded != bare+1 || twice != bare+2 {
			t.Errorf("%d round trips without a guard, %d with one, %d with two, want 3, 4 and 5", bare, guarded, twice)
		}
	})
}
