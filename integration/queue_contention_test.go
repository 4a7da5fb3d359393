package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// Contention is no error to the server.
func TestQueueContentionIsNoError(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	dsn := migrated(t, server)
	byDefault(t, open(t, "pgx", dsn), "default_transaction_isolation", "'serializable'")
	var stores []*bunstore.Store
	for i := range 4 {
		stores = append(stores, newStore(t, open(t, []string{"pgx", "pgdriver"}[i%2], dsn), bunstore.WithCallLimit(time.Minute)))
	}
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			store := stores[n%len(stores)]
			for round := range 25 {
				r := request("r", fmt.Sprint("w", n))
				r.Attempt = fmt.Sprint(round)
				place, err := store.Enqueue(t.Context(), r, 8)
				if err != nil {
					if !errors.Is(err, locks.ErrQueueFull) {
						t.Error(err)
					}
					continue
				}
				var lock locks.Lock
				switch (n + round) % 4 {
				case 0:
					r.Barge = true
					fallthrough
				case 1:
					lock, err = store.Acquire(t.Context(), r)
				case 2:
					var both []locks.Lock
					if both, err = store.AcquireAll(t.Context(), []locks.Request{r}); err == nil {
						lock = both[0]
					}
				case 3:
					err = store.RunInTx(t.Context(), &sql.TxOptions{Isolation: isolations[0]}, func(ctx context.Context, tx *bunstore.Tx) error {
						got, err := tx.Acquire(ctx, r)
						if err != nil {
							return err
						}
						return tx.Release(ctx, got.Grant())
					})
				}
				if err != nil && !errors.Is(err, locks.ErrHeld) && !errors.Is(err, locks.ErrRetryable) {
					t.Error(err)
				}
				if err := place.Leave(t.Context()); err != nil {
					t.Error(err)
				}
				if lock.Token != 0 {
					if err := store.Release(t.Context(), lock.Grant()); err != nil {
						t.Error(err)
					}
				}
				if _, err := store.Purge(t.Context(), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	waiting(t, stores[0], "r")
	if log := server.Logs(t); containsAny(log, "ERROR:", "deadlock", "duplicate key") {
		t.Errorf("the server logged errors:\n%s", log)
	}
}
