package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// What shares cost in round trips, once the statements are prepared. What changes one is a statement on the lease, which finds
// a group, and a transaction of the store's own: begin, gate, statement, commit. An acquire looks instead of the first.
func TestTheCostsOfSharesInRoundTrips(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		p, dsn := through(t, migrated(t, postgres.Shared(t)))
		db := open(t, driver, dsn)
		if driver == "pgx" {
			db = openWithoutPings(t, dsn)
		}
		db.SetMaxOpenConns(1)
		store := newStore(t, db)
		var first, second locks.Lock
		request := shareRequest("doc", "w2", 2)
		acquire := func(lock *locks.Lock, request locks.Request) func(context.Context) error {
			return func(ctx context.Context) (err error) {
				*lock, err = store.Acquire(ctx, request)
				return err
			}
		}
		refused := func(slots int) func(context.Context) error {
			return func(ctx context.Context) error {
				if _, err := store.Acquire(ctx, shareRequest("doc", "w3", slots)); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("err = %v, want held", err)
				}
				return nil
			}
		}
		guard := func(guards int) func(context.Context) error {
			return func(ctx context.Context) error {
				return store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
					for range guards {
						if err := tx.Guard(ctx, first.Grant()); err != nil {
							return err
						}
					}
					return nil
				})
			}
		}
		for round := range 2 { // in the first one connections are opened, statements prepared
			for _, call := range []struct {
				name string
				do   func(context.Context) error
				want int
			}{
				{"Acquire, the first of its group", acquire(&first, shareRequest("doc", "w1", 2)), 5},
				{"Acquire, another", acquire(&second, request), 5},
				{"Acquire, a retry", acquire(&second, request), 1},
				{"Acquire, refused", refused(2), 1},
				{"Acquire alone, refused", refused(0), 2},
				{"Holders", func(ctx context.Context) error { _, err := store.Holders(ctx, "doc", 10); return err }, 1},
				{"Renew", func(ctx context.Context) error { _, err := store.Renew(ctx, first.Grant(), locks.MaxTTL); return err }, 5},
				{"a transaction", guard(0), 2},
				{"Guard", guard(1), 2 + 2},
				{"Release", func(ctx context.Context) error { return store.Release(ctx, first.Grant()) }, 6},
				{"ForceRelease of a share", func(ctx context.Context) error {
					_, err := store.ForceRelease(ctx, "doc", second.Token)
					return err
				}, 7},
				{"Acquire, for the next one", acquire(&first, request), 5},
				{"ReleaseAttempt", func(ctx context.Context) error { return store.ReleaseAttempt(ctx, "doc", "w2", request.Attempt) }, 7},
			} {
				before := p.Trips()
				if err := call.do(t.Context()); err != nil {
					t.Fatalf("%s, %s: %v", driver, call.name, err)
				}
				if got := p.Trips() - before; round > 0 && got != call.want {
					t.Errorf("%s, %s: %d round trips, want %d", driver, call.name, got, call.want)
				}
			}
		}
	}
}
