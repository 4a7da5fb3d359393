package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// A request's retry may come while the first one's grant is not committed. It does not wait for that, nor does anybody who
// comes after it.
func TestQueueDoesNotWaitForTransactions(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		w1 := request("r", "w1")
		drawn := enqueue(t, r.rival, w1).Waiter()
		for _, ended := range []bool{false, true} {
			if ended {
				exec(t, r.rivalDB, "UPDATE distributed_lock_waiters SET expires_at = clock_timestamp() WHERE owner = 'w1'")
			}
			tx, handle := r.begin(t, isolations[0])
			lock, err := handle.Acquire(t.Context(), w1)
			if err != nil {
				t.Fatal(err)
			}
			if err := handle.Guard(t.Context(), lock.Grant()); err != nil {
				t.Fatal(err)
			}
			switch place, err := r.rival.Enqueue(t.Context(), w1, 0); {
			case !ended && (err != nil || place.Waiter() != drawn):
				t.Errorf("Enqueue again = %v, want the ticket that it has", err)
			case ended && !errors.Is(err, locks.ErrBusy):
				t.Errorf("Enqueue where the ended ticket is just taken out = %v, want busy", err)
			case err == nil:
				place.Served()
			}
			late := enqueue(t, r.rival, request("r", "late"))
			if err := late.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		// A guard of a committed lease is in nobody's way either.
		lock := acquire(t, r.rival, w1)
		_, handle := r.begin(t, isolations[0])
		if err := handle.Guard(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
		enqueue(t, r.rival, request("r", "late"))
	})
}

// A grant whose answer was lost may be found again by an attempt that has queued meanwhile.
func TestQueueHasNoTicketOfWhatIsFoundAgain(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		w1 := request("r", "w1")
		lock := acquire(t, r.store, w1)
		for name, find := range map[string]func() (locks.Lock, error){
			"Acquire": func() (locks.Lock, error) { return r.store.Acquire(t.Context(), w1) },
			"AcquireAll": func() (locks.Lock, error) {
				all, err := r.store.AcquireAll(t.Context(), []locks.Request{w1})
				return append(all, locks.Lock{})[0], err
			},
			"Tx.Acquire": func() (found locks.Lock, err error) {
				err = r.store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
					found, err = tx.Acquire(ctx, w1)
					return err
				})
				return found, err
			},
		} {
			enqueue(t, r.store, w1)
			enqueue(t, r.store, request("r", "w2"))
			if found, err := find(); err != nil || found.Token != lock.Token {
				t.Errorf("%s = %+v, %v; want token %d", name, found, err, lock.Token)
			}
			waiting(t, r.store, "r", "w2")
		}
	})
}

// endsAfter ends a context after the first statement that has the text in it.
type endsAfter struct {
	text string
	end  func()
}

func (*endsAfter) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }
func (h *endsAfter) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if strings.Contains(event.Query, h.text) {
		h.end()
	}
}

// Who has freed the resource tells the next one, though its own context has ended by that.
func TestQueueIsToldByWhoHasNoTimeLeft(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		heard := announced(t, dsn, "there")
		others := newStore(t, open(t, driver, dsn))
		for _, leaving := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := newStore(t, db, bunstore.WithQueryHook(&endsAfter{"AND set_config('synchronous_commit', 'off', true)", cancel}))
			lock := acquire(t, others, request("r", "w0"))
			var first locks.Place
			if leaving {
				store = newStore(t, db, bunstore.WithQueryHook(&endsAfter{"DELETE FROM", cancel}))
				var err error
				if first, err = store.Enqueue(t.Context(), request("r", "leaving"), 0); err != nil {
					t.Fatal(err)
				}
			}
			second := enqueue(t, others, request("r", "w1"))
			exec(t, db, "UPDATE distributed_lock_waiters SET channel = 'there' WHERE owner = 'w1'")
			var err error
			if leaving {
				exec(t, db, "DELETE FROM distributed_locks")
				err = first.Leave(ctx)
			} else {
				err = store.Release(ctx, lock.Grant())
			}
			if err != nil && !leaving { // a Leave may come back when its context ends
				t.Errorf("leaving %t: %v", leaving, err)
			}
			if ctx.Err() == nil {
				t.Error("the context has not ended")
			}
			if got := heard(); got != fmt.Sprint(second.Waiter().Number) {
				t.Errorf("leaving %t: heard %q, want the next ticket", leaving, got)
			}
			if err := second.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Each who leaves asks whose turn it is: of two who leave at once, the one that is seen last may have been the second.
func TestQueueIsToldByEveryoneWhoLeaves(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		heard := announced(t, dsn, "there")
		store := newStore(t, db)
		lock := acquire(t, store, request("r", "w0"))
		first, second, third := enqueue(t, store, request("r", "w1")), enqueue(t, store, request("r", "w2")), enqueue(t, store, request("r", "w3"))
		exec(t, db, "UPDATE distributed_lock_waiters SET channel = 'there'")
		if err := third.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db, "SELECT pg_notify('there', 'it is held')")
		if got := heard(); got != "it is held" {
			t.Errorf("heard %q while it is held", got)
		}
		exec(t, db, "DELETE FROM distributed_locks WHERE token = ?", lock.Token)
		if err := second.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := heard(); got != fmt.Sprint(first.Waiter().Number) {
			t.Errorf("heard %q, want the first ticket", got)
		}
	})
}

// Tickets are kept by their process, but not that of an open grant, which nobody waits for; and who keeps the ones behind
// takes out the dead ones before them.
func TestQueueKeepsAndLooks(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		r := newTxRig(t, driver, dsn)
		exec(t, r.rivalDB, `INSERT INTO distributed_lock_waiters (resource, owner, attempt, channel, since, expires_at)
			VALUES ('r', 'dead', 'a', '', 'epoch', 'epoch'), ('nobody asks for it', 'dead', 'a', '', 'epoch', 'epoch')`)
		store := newStore(t, r.rivalDB, bunstore.WithTicketTTL(3*time.Second), bunstore.WithPoll(10*time.Millisecond, 100*time.Millisecond))
		first := enqueue(t, store, request("r", "w1"))
		second := enqueue(t, store, request("r", "w2"))
		tx, handle := r.begin(t, isolations[0])
		if _, err := handle.Acquire(t.Context(), request("r", "w1")); err != nil {
			t.Fatal(err)
		}
		expires := func(place locks.Place) time.Time {
			return time.UnixMicro(scan[int64](t, r.rivalDB, "SELECT (extract(epoch FROM expires_at) * 1000000)::bigint FROM distributed_lock_waiters WHERE number = ?",
				place.Waiter().Number)).UTC()
		}
		eventually(t, "the second ticket is kept", func() bool { return expires(second).After(second.Waiter().ExpiresAt) })
		if got := expires(first); first.Lapsed() || !got.Equal(first.Waiter().ExpiresAt) {
			t.Errorf("the ticket of the open grant: lapsed %t, ends at %v, drawn until %v", first.Lapsed(), got, first.Waiter().ExpiresAt)
		}
		eventually(t, "the dead ticket before them is gone", func() bool {
			return scan[int](t, r.rivalDB, "SELECT count(*) FROM distributed_lock_waiters WHERE owner = 'dead' AND resource = 'r'") == 0
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		first.Served()
		for len(second.Turn()) > 0 {
			<-second.Turn()
		}
		exec(t, r.rivalDB, "DELETE FROM distributed_locks")
		<-second.Turn() // nobody announces it
		if n, err := store.Purge(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("Purge = %d, %v; tickets are not counted", n, err)
		}
		if n := scan[int](t, r.rivalDB, "SELECT count(*) FROM distributed_lock_waiters WHERE owner = 'dead'"); n != 0 {
			t.Errorf("%d dead tickets are left", n)
		}
	})
}
