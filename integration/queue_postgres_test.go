package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// enqueue draws a ticket, which stays until the test ends it.
func enqueue(t *testing.T, store *bunstore.Store, r locks.Request) locks.Place {
	t.Helper()
	place, err := store.Enqueue(t.Context(), r, 0)
	if err != nil {
		t.Fatalf("Enqueue(%+v): %v", r, err)
	}
	t.Cleanup(func() { _ = place.Leave(context.WithoutCancel(t.Context())) })
	return place
}

func refused(t *testing.T, store *bunstore.Store, r locks.Request) {
	t.Helper()
	_, err := store.Acquire(t.Context(), r)
	var held *locks.HeldError
	if !errors.As(err, &held) || held.Holder != nil {
		t.Errorf("Acquire by %s = %v, want held by nobody", r.Owner, err)
	}
}

func waiting(t *testing.T, store *bunstore.Store, resource string, owners ...string) {
	t.Helper()
	queue, err := store.Waiters(t.Context(), resource, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range queue.Waiters {
		got = append(got, w.Owner)
	}
	if !slices.Equal(got, owners) || queue.Waiting != len(owners) {
		t.Errorf("%d wait: %q, want %q", queue.Waiting, got, owners)
	}
}

func TestQueueServesTheFirst(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(isolation, func(t *testing.T) {
				byDefault(t, db, "default_transaction_isolation", "'"+isolation+"'")
				store := newStore(t, open(t, driver, dsn))
				r := func(owner string) locks.Request { return request("r", owner) }
				enqueue(t, store, r("w1"))
				again := enqueue(t, store, r("w1")).Waiter()
				enqueue(t, store, r("w2"))
				enqueue(t, store, r("w3"))
				waiting(t, store, "r", "w1", "w2", "w3")
				if queue, err := store.Waiters(t.Context(), "r", 0); err != nil || queue.Waiting != 3 || len(queue.Waiters) != 0 {
					t.Errorf("Waiters with limit 0 = %+v, %v", queue, err)
				}
				if queue, err := store.Waiters(t.Context(), "r", 1); err != nil || queue.Waiters[0] != again {
					t.Errorf("the first is %+v (%v), drawn again as %+v", queue, err, again)
				}
				refused(t, store, r("outsider"))
				refused(t, store, r("w2"))
				other := r("w1")
				other.Attempt = "another"
				refused(t, store, other)
				if _, err := store.AcquireAll(t.Context(), []locks.Request{request("a", "outsider"), r("outsider")}); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("AcquireAll = %v, want held", err)
				}
				acquire(t, store, r("w1"))
				waiting(t, store, "r", "w2", "w3")
				lock := acquire(t, store, other) // in place
				if err := store.Release(t.Context(), lock.Grant()); err != nil {
					t.Fatal(err)
				}
				exec(t, db, "UPDATE distributed_lock_waiters SET expires_at = clock_timestamp() WHERE owner = 'w2'")
				refused(t, store, r("w2"))
				barging := r("barging")
				barging.Barge = true
				lock = acquire(t, store, barging)
				waiting(t, store, "r", "w3")
				if err := store.Release(t.Context(), lock.Grant()); err != nil {
					t.Fatal(err)
				}
				locked, err := store.AcquireAll(t.Context(), []locks.Request{r("w3"), request("a", "w3")})
				if err != nil {
					t.Fatal(err)
				}
				waiting(t, store, "r")
				for _, lock := range locked {
					if err := store.Release(t.Context(), lock.Grant()); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := store.Purge(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
				if n := scan[int](t, db, "SELECT count(*) FROM distributed_lock_waiters"); n != 0 {
					t.Errorf("%d tickets are left", n)
				}
			})
		}
	})
}

func TestQueueInATransaction(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		for _, isolation := range isolations {
			enqueue(t, r.rival, request("r", "w1"))
			enqueue(t, r.rival, request("r", "w2"))
			for _, commit := range []bool{false, true} {
				tx, handle := r.begin(t, isolation)
				if _, err := handle.Acquire(t.Context(), request("r", "w2")); !errors.Is(err, locks.ErrHeld) {
					t.Errorf("%v: the second in a transaction: %v, want held", isolation, err)
				}
				lock, err := handle.Acquire(t.Context(), request("r", "w1"))
				if err != nil {
					t.Fatal(err)
				}
				waiting(t, r.rival, "r", "w1", "w2")
				// Nobody who queues waits for the transaction.
				late := enqueue(t, r.rival, request("r", "late"))
				if err := late.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !commit {
					if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
					waiting(t, r.rival, "r", "w1", "w2")
					continue
				}
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				waiting(t, r.rival, "r", "w2")
				if err := r.rival.Release(t.Context(), lock.Grant()); err != nil {
					t.Fatal(err)
				}
			}
			lock, err := r.rival.Acquire(t.Context(), request("r", "w2"))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.rival.Release(t.Context(), lock.Grant()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Tickets have the order of their commits, and where there is room for ten ten stay.
func TestQueueFiftyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	stores := []*bunstore.Store{newStore(t, open(t, "pgx", dsn)), newStore(t, open(t, "pgdriver", dsn))}
	for _, most := range []int{0, 10} {
		var group sync.WaitGroup
		var mu sync.Mutex
		var stay int
		resource := fmt.Sprint("r", most)
		for i := range 50 {
			group.Go(func() {
				place, err := stores[i%2].Enqueue(t.Context(), request(resource, fmt.Sprint("w", i)), most)
				switch {
				case most > 0 && errors.Is(err, locks.ErrQueueFull):
				case err != nil:
					t.Error(err)
				default:
					// Whoever is seen has a smaller number.
					queue, err := stores[i%2].Waiters(t.Context(), resource, 1000)
					if err != nil || most == 0 && len(queue.Waiters) == 0 {
						t.Error(err)
					}
					t.Cleanup(func() { _ = place.Leave(context.WithoutCancel(t.Context())) })
					mu.Lock()
					stay++
					mu.Unlock()
				}
			})
		}
		// Every ticket that appears has a larger number than all that were seen before.
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		var seen int64
		known := map[int64]bool{}
		for looking := true; looking; {
			select {
			case <-done:
				looking = false
			default:
			}
			queue, err := stores[0].Waiters(t.Context(), resource, 1000)
			if err != nil {
				t.Fatal(err)
			}
			last := seen
			for _, w := range queue.Waiters {
				if most == 0 && w.Number <= seen && !known[w.Number] {
					t.Errorf("ticket %d appeared after %d", w.Number, seen)
				}
				known[w.Number] = true
				last = max(last, w.Number)
			}
			seen = last
		}
		want := 50
		if most > 0 {
			want = most
		}
		if queue, err := stores[0].Waiters(t.Context(), resource, 0); err != nil || queue.Waiting != want || stay != want {
			t.Errorf("%d wait, %d stay, want %d (%v)", queue.Waiting, stay, want, err)
		}
	}
}

// announced is a connection that hears what is announced.
func announced(t *testing.T, dsn, channel string) (next func() string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return heard.Payload
	}
}

func TestQueueAnnouncesOnlyToWhoeverHasTheTurn(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		heard := announced(t, dsn, "there")
		mark := func(text string) {
			t.Helper()
			exec(t, db, "SELECT pg_notify('there', ?)", text)
			if got := heard(); got != text {
				t.Errorf("heard %q before %q", got, text)
			}
		}
		lock := acquire(t, store, request("r", "w0"))
		if err := store.Release(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
		mark("nobody waits")
		lock = acquire(t, store, request("r", "w0"))
		place := enqueue(t, store, request("r", "w1"))
		second := enqueue(t, store, request("r", "w2"))
		exec(t, db, "UPDATE distributed_lock_waiters SET channel = 'there'")
		if err := store.Release(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
		if got := heard(); got != fmt.Sprint(place.Waiter().Number) {
			t.Errorf("heard %q, want the first ticket", got)
		}
		if err := place.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := heard(); got != fmt.Sprint(second.Waiter().Number) {
			t.Errorf("heard %q, want the second ticket", got)
		}
		mark("and no more")
		lock = acquire(t, store, request("r", "w2"))
		third := enqueue(t, store, request("r", "w3"))
		exec(t, db, "UPDATE distributed_lock_waiters SET channel = 'there'")
		err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
			if err := tx.Release(ctx, lock.Grant()); err != nil {
				return err
			}
			mark("not before the commit")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := heard(); got != fmt.Sprint(third.Waiter().Number) {
			t.Errorf("heard %q, want the third ticket", got)
		}
	})
}
