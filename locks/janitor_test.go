package locks_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func fill(t *testing.T, store *memstore.Store, n int, ttl time.Duration) {
	t.Helper()
	for i := range n {
		request := locks.Request{Resource: fmt.Sprint("r:", ttl, i), Owner: "o", Attempt: "a", TTL: ttl}
		if _, err := store.Acquire(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPurgeDeletesWhatEndedBatchByBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		fill(t, store, 25, time.Second)
		fill(t, store, 3, time.Hour)
		time.Sleep(time.Minute)
		janitor, err := locks.NewJanitor(store, locks.WithPurgeBatch(10))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := janitor.Purge(t.Context()); n != 25 || err != nil {
			t.Errorf("Purge = %d, %v; want 25", n, err)
		}
		if n := store.Rows(); n != 3 {
			t.Errorf("%d rows are left, want the 3 live ones", n)
		}
	})
}

type failingPurger struct{ calls int }

func (p *failingPurger) Purge(context.Context, int) (int, error) {
	if p.calls++; p.calls == 1 {
		return 0, errFault
	}
	return 1, nil
}

func TestJanitorRunsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		purger, failed, purged := new(failingPurger), 0, 0
		janitor, err := locks.NewJanitor(purger, locks.WithPurgeInterval(time.Minute),
			locks.WithPurgeReport(func(_ context.Context, n int, err error) {
				purged += n
				if err != nil {
					failed++
				}
			}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		janitor.Run(ctx)
		if purger.calls < 28 || purger.calls > 33 || failed != 1 || purged != purger.calls-1 {
			t.Errorf("%d purges, %d failed, %d rows in 30 minutes; want about 30, the first failed", purger.calls, failed, purged)
		}
	})
}

func TestNewJanitorRefusesBadOptions(t *testing.T) {
	for _, option := range []locks.JanitorOption{locks.WithPurgeInterval(0), locks.WithPurgeBatch(0), nil} {
		_, err := locks.NewJanitor(memstore.New(), option)
		wantErr(t, err, locks.ErrInvalid)
	}
	_, err := locks.NewJanitor(nil)
	wantErr(t, err, locks.ErrInvalid)
}
