package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// Whoever is granted a resource by TryDoTx sees what the holder before wrote, whatever the database's default isolation:
// each reads the largest number and writes the next.
func TestDoTxSeesTheHolderBefore(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	for i, level := range []string{"", "'repeatable read'", "serializable"} {
		parameters := ""
		if level != "" {
			parameters = "default_transaction_isolation=" + map[string]string{"'repeatable read'": "repeatable%20read", "serializable": "serializable"}[level]
		}
		r := newTxRig(t, "pgx", withParameters(dsn, parameters))
		table := fmt.Sprint("numbers", i)
		exec(t, r.db, "CREATE TABLE "+table+" (n int)")
		locker, err := locks.New(r.store, locks.WithBackoff(time.Millisecond, 5*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer locker.Close(context.Background())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		write := func() error {
			return locker.DoTx(ctx, r.store, "numbers", func(ctx context.Context, tx locks.Tx, _ *locks.Lease) error {
				q := bunstore.TxFrom(tx)
				var n int
				if err := q.NewRaw("SELECT coalesce(max(n), 0) FROM "+table).Scan(ctx, &n); err != nil {
					return err
				}
				_, err := q.NewRaw("INSERT INTO "+table+" VALUES (?)", n+1).Exec(ctx)
				return err
			})
		}
		const workers, each = 4, 8
		done := make(chan error, workers)
		for range workers {
			go func() {
				for range each {
					err := write()
					for errors.Is(err, locks.ErrRetryable) && ctx.Err() == nil { // DoTx has a limit to its tries
						err = write()
					}
					if err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range workers {
			if err := <-done; err != nil {
				t.Errorf("default %s: %v", level, err)
			}
		}
		if n, distinct := scan[int](t, r.db, "SELECT count(*) FROM "+table), scan[int](t, r.db, "SELECT count(DISTINCT n) FROM "+table); n != workers*each || distinct != n {
			t.Errorf("default %s: %d numbers, %d different, want %d", level, n, distinct, workers*each)
		}
	}
}
