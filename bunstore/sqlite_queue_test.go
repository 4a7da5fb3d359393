package bunstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// seldom makes a store that looks so seldom that whatever a test hears in time was told to it.
var seldom = bunstore.WithPoll(time.Hour, time.Hour)

// queued enqueues without a limit.
func queued(tb testing.TB, store *bunstore.Store, r locks.Request) locks.Place {
	tb.Helper()
	place, err := store.Enqueue(tb.Context(), r, 0)
	if err != nil {
		tb.Fatalf("Enqueue(%+v): %v", r, err)
	}
	return place
}

// wantTurn waits until the place says that it may be its turn.
func wantTurn(tb testing.TB, place locks.Place) {
	tb.Helper()
	select {
	case <-place.Turn():
	case <-time.After(30 * time.Second):
		tb.Fatalf("%s was not told of its turn", place.Waiter().Owner)
	}
}

// wantRefused wants the refusal of a free resource that another one is to have.
func wantRefused(tb testing.TB, store *bunstore.Store, r locks.Request) {
	tb.Helper()
	lock, err := store.Acquire(tb.Context(), r)
	var held *locks.HeldError
	if !errors.As(err, &held) || held.Holder != nil || held.Resource != r.Resource {
		tb.Errorf("Acquire by %s = %+v, %v; want held, without a holder", r.Owner, lock, err)
	}
}

// wantQueue wants these owners to wait, in this order.
func wantQueue(tb testing.TB, store *bunstore.Store, resource string, owners ...string) {
	tb.Helper()
	queue, err := store.Waiters(tb.Context(), resource, locks.MaxListWaiters)
	if err != nil {
		tb.Fatalf("Waiters: %v", err)
	}
	var got []string
	for _, waiter := range queue.Waiters {
		got = append(got, waiter.Owner)
	}
	if !slices.Equal(got, owners) || queue.Waiting != len(owners) {
		tb.Errorf("%d wait for %s: %q; want %q", queue.Waiting, resource, got, owners)
	}
}

func release(tb testing.TB, store *bunstore.Store, lock locks.Lock) {
	tb.Helper()
	if err := store.Release(tb.Context(), lock.Grant()); err != nil {
		tb.Fatalf("Release(%+v): %v", lock, err)
	}
}

// endTicket ends the ticket of one whose process did not keep it.
func endTicket(tb testing.TB, db *bun.DB, place locks.Place) {
	tb.Helper()
	execSQL(tb, db, "UPDATE distributed_lock_waiters SET expires_at = 0 WHERE number = ?", place.Waiter().Number)
}

func tickets(tb testing.TB, db *bun.DB) (n int) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), "SELECT count(*) FROM distributed_lock_waiters").Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestTheFirstInTheQueueIsServedFirst(t *testing.T) {
	t.Parallel()
	store := newStore(t, migrated(t), seldom)
	held := acquire(t, store, request("r", "holder"))
	first, second := queued(t, store, request("r", "a")), queued(t, store, request("r", "b"))
	if a, b := first.Waiter(), second.Waiter(); a.Number >= b.Number || b.Resource != "r" || b.Owner != "b" ||
		time.Since(b.Since).Abs() > time.Hour || b.ExpiresAt.Sub(b.Since) != 15*time.Second {
		t.Errorf("tickets %+v and %+v", a, b)
	}
	wantQueue(t, store, "r", "a", "b")
	wantHeld(t, acquireError(t, store, request("r", "b")), "r", held.Token)

	for _, next := range []string{"a", "b"} {
		release(t, store, held)
		wantRefused(t, store, request("r", "outsider"))
		if next == "a" {
			wantRefused(t, store, request("r", "b"))
		}
		before := held.Token
		if held = acquire(t, store, request("r", next)); held.Token <= before {
			t.Errorf("token %d after %d", held.Token, before)
		}
		if again := acquire(t, store, request("r", next)); again.Token != held.Token {
			t.Errorf("the attempt got token %d when it asked again, want its own %d", again.Token, held.Token)
		}
	}
	wantQueue(t, store, "r")
	release(t, store, held)
	acquire(t, store, request("r", "outsider"))
	acquire(t, store, request("another", "outsider"))
}

func acquireError(tb testing.TB, store *bunstore.Store, r locks.Request) error {
	tb.Helper()
	_, err := store.Acquire(tb.Context(), r)
	return err
}

// While another process writes for as long as it likes.
func TestARefusalByTheQueueDoesNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "WAL")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db, seldom, bunstore.WithBusyLimit(time.Hour), bunstore.WithCallLimit(time.Hour))
	first, second := queued(t, store, request("r", "a")), queued(t, store, request("r", "b"))
	commit := writer(t, openBesides(t, file, "WAL"))
	wantRefused(t, store, request("r", "outsider"))
	wantRefused(t, store, request("r", "b"))
	another := request("r", "a") // whose ticket is that of its other attempt
	another.Attempt = "another"
	wantRefused(t, store, another)
	if _, err := store.AcquireAll(t.Context(), requests("outsider", "other", "r")); !errors.Is(err, locks.ErrHeld) {
		t.Errorf("AcquireAll = %v, want held", err)
	}
	if _, err := store.Enqueue(t.Context(), request("r", "outsider"), 2); !errors.Is(err, locks.ErrQueueFull) || !errors.Is(err, locks.ErrHeld) {
		t.Errorf("Enqueue = %v, want the queue full", err)
	}
	if again := queued(t, store, request("r", "b")); again.Waiter() != second.Waiter() {
		t.Errorf("the attempt has the ticket %+v when it asks again, want %+v", again.Waiter(), second.Waiter())
	}
	wantQueue(t, store, "r", "a", "b")
	commit()
	if err := first.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantQueue(t, store, "r", "b")
}

func TestWhoNeedNotQueue(t *testing.T) {
	t.Parallel()
	t.Run("who barges", func(t *testing.T) {
		store := newStore(t, migrated(t), seldom)
		queued(t, store, request("r", "a"))
		queued(t, store, request("r", "b"))
		barging := request("r", "outsider")
		barging.Barge = true
		release(t, store, acquire(t, store, barging))
		wantQueue(t, store, "r", "a", "b")
		barging = request("r", "b")
		barging.Barge = true
		held := acquire(t, store, barging)
		wantQueue(t, store, "r", "a")
		barging = request("r", "outsider")
		barging.Barge = true
		wantHeld(t, acquireError(t, store, barging), "r", held.Token)
	})
	t.Run("who holds it", func(t *testing.T) {
		db := migrated(t)
		store := newStore(t, db, seldom)
		held := acquire(t, store, request("r", "holder"))
		queued(t, store, request("r", "a"))
		more := request("r", "holder")
		more.Attempt = "another"
		if again := acquire(t, store, more); again.Token <= held.Token || again.ID != held.ID {
			t.Errorf("the holder's new grant is %+v after %+v, want a larger token in place", again, held)
		}
		execSQL(t, db, "UPDATE distributed_locks SET expires_at = 0")
		wantRefused(t, store, request("r", "holder")) // any more
	})
}

func TestATicketThatHasEnded(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom)
	first := queued(t, store, request("r", "a"))
	queued(t, store, request("r", "b"))
	endTicket(t, db, first)
	wantQueue(t, store, "r", "b")
	wantRefused(t, store, request("r", "a")) // as one that never queued
	held := acquire(t, store, request("r", "b"))
	if n := tickets(t, db); n != 0 {
		t.Errorf("%d tickets are left, want the ended one taken out with the grant", n)
	}
	release(t, store, held)

	// One that wants on is behind those who came meanwhile.
	ended := queued(t, store, request("r", "c"))
	queued(t, store, request("r", "d"))
	endTicket(t, db, ended)
	again := queued(t, store, request("r", "c"))
	if again.Waiter().Number <= ended.Waiter().Number {
		t.Errorf("the ticket %+v is not behind %+v", again.Waiter(), ended.Waiter())
	}
	wantQueue(t, store, "r", "d", "c")
	if n := tickets(t, db); n != 2 {
		t.Errorf("%d tickets, want the ended one gone", n)
	}

	// Ended ones alone are nobody.
	execSQL(t, db, "UPDATE distributed_lock_waiters SET expires_at = 0")
	acquire(t, store, request("r", "outsider"))
	execSQL(t, db, "INSERT INTO distributed_lock_waiters (resource, owner, attempt, channel, since, expires_at) VALUES ('s', 'w', 'k', '', 0, 0)")
	if n, err := store.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("Purge = %d, %v; want no leases", n, err)
	}
	if n := tickets(t, db); n != 0 {
		t.Errorf("%d tickets after a purge", n)
	}
}

// A ticket that is gone is noticed when the process keeps its tickets.
func TestATicketThatIsGoneHasLapsed(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom, bunstore.WithTicketTTL(100*time.Millisecond))
	place := queued(t, store, request("r", "a"))
	endTicket(t, db, place)
	wantTurn(t, place)
	if !place.Lapsed() {
		t.Error("a ticket that has ended has not lapsed")
	}
}

func TestAQueueOfAtMostSoMany(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	dbs := []*bun.DB{openSQLite(t, file), openSQLite(t, file)}
	if err := bunstore.Migrate(t.Context(), dbs[0]); err != nil {
		t.Fatal(err)
	}
	stores := []*bunstore.Store{
		newStore(t, dbs[0], seldom, bunstore.WithBusyLimit(time.Minute), bunstore.WithCallLimit(time.Minute)),
		newStore(t, dbs[1], seldom, bunstore.WithBusyLimit(time.Minute), bunstore.WithCallLimit(time.Minute)),
	}
	results := make(chan error)
	var start sync.WaitGroup
	start.Add(1)
	for i := range 12 {
		go func() {
			r := request("r", "w"+string(rune('a'+i)))
			start.Wait()
			_, err := stores[i%2].Enqueue(t.Context(), r, 4)
			results <- err
		}()
	}
	start.Done()
	in := 0
	for range 12 {
		if err := <-results; err == nil {
			in++
		} else if !errors.Is(err, locks.ErrQueueFull) {
			t.Errorf("Enqueue = %v, want the queue full", err)
		}
	}
	if n := tickets(t, dbs[0]); in != 4 || n != 4 {
		t.Errorf("%d have a place and %d have a ticket, want 4", in, n)
	}
	execSQL(t, dbs[0], "UPDATE distributed_lock_waiters SET expires_at = 0 WHERE number = (SELECT max(number) FROM distributed_lock_waiters)")
	if _, err := stores[1].Enqueue(t.Context(), request("r", "later"), 4); err != nil {
		t.Errorf("Enqueue beside one that has ended = %v", err)
	}
}

// Whoever is in one process is told by whatever frees the resource there.
func TestWaitersOfOneProcessAreToldOfTheirTurn(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(t *testing.T, store *bunstore.Store, lock locks.Lock) error{
		"release": func(t *testing.T, store *bunstore.Store, lock locks.Lock) error {
			t.Helper()
			return store.Release(t.Context(), lock.Grant())
		},
		"release by attempt": func(t *testing.T, store *bunstore.Store, _ locks.Lock) error {
			t.Helper()
			return store.ReleaseAttempt(t.Context(), "r", "holder", "attempt of holder")
		},
		"force release": func(t *testing.T, store *bunstore.Store, lock locks.Lock) error {
			t.Helper()
			_, err := store.ForceRelease(t.Context(), "r", lock.Token)
			return err
		},
		"release in a transaction": func(t *testing.T, store *bunstore.Store, lock locks.Lock) error {
			t.Helper()
			return store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
				return tx.Release(ctx, lock.Grant())
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, migrated(t), seldom)
			held := acquire(t, store, request("r", "holder"))
			first, second := queued(t, store, request("r", "a")), queued(t, store, request("r", "b"))
			if err := free(t, store, held); err != nil {
				t.Fatal(err)
			}
			wantTurn(t, first)
			// Who has the turn and goes gives it to the next.
			if err := first.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantTurn(t, second)
			release(t, store, acquire(t, store, request("r", "b")))
			second.Served()
		})
	}
}

// Who leaves from elsewhere in the queue, or while the resource is held, disturbs nobody.
func TestWhoLeavesTellsOnlyWhoHasTheTurn(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom)
	acquire(t, store, request("r", "holder"))
	places := []locks.Place{queued(t, store, request("r", "a")), queued(t, store, request("r", "b")), queued(t, store, request("r", "c"))}
	if err := places[0].Leave(t.Context()); err != nil { // the first one, but it is held
		t.Fatal(err)
	}
	execSQL(t, db, "DELETE FROM distributed_locks")      // nobody is told
	if err := places[2].Leave(t.Context()); err != nil { // free, but not the first
		t.Fatal(err)
	}
	select {
	case <-places[1].Turn():
		t.Error("told of a turn by one that had none")
	default:
	}
	wantQueue(t, store, "r", "b")
}

func TestTwoProcessesOnOneFilePoll(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	dbs := []*bun.DB{openSQLite(t, file), openSQLite(t, file)}
	if err := bunstore.Migrate(t.Context(), dbs[0]); err != nil {
		t.Fatal(err)
	}
	here := newStore(t, dbs[0], bunstore.WithPoll(time.Millisecond, 10*time.Millisecond))
	there := newStore(t, dbs[1], bunstore.WithPoll(time.Millisecond, 10*time.Millisecond))
	held := acquire(t, here, request("r", "holder"))
	first, second := queued(t, there, request("r", "a")), queued(t, here, request("r", "b"))
	release(t, here, held)
	wantTurn(t, first)
	held = acquire(t, there, request("r", "a"))
	first.Served()
	release(t, there, held)
	wantTurn(t, second)
	acquire(t, here, request("r", "b"))
	second.Served()

	// An end by time is a turn, too.
	third := queued(t, here, request("r", "c"))
	execSQL(t, dbs[1], "UPDATE distributed_locks SET expires_at = 0")
	wantTurn(t, third)
	acquire(t, here, request("r", "c"))
	third.Served()
}

// Somebody comes between what an acquire reads and what it writes.
func TestATicketThatIsDrawnMeanwhile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		comes   string
		granted bool
	}{
		"by another":           {"b", false},
		"by this very attempt": {"a", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "leases.db")
			db, other := openSQLite(t, file), openSQLite(t, file)
			if err := bunstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			comes := newStore(t, other, seldom)
			store := newStore(t, db, seldom, bunstore.WithQueryHook(&afterFirst{do: func() { queued(t, comes, request("r", test.comes)) }}))
			if !test.granted {
				wantRefused(t, store, request("r", "a"))
				wantQueue(t, comes, "r", test.comes)
				return
			}
			acquire(t, store, request("r", "a"))
			wantQueue(t, comes, "r")
		})
	}
}

// Or between what an enqueue reads and what it writes.
func TestATicketBesideOneThatIsDrawnMeanwhile(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"a", "b"} {
		t.Run(who, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "leases.db")
			db, other := openSQLite(t, file), openSQLite(t, file)
			if err := bunstore.Migrate(t.Context(), db); err != nil {
				t.Fatal(err)
			}
			var drawn locks.Place
			comes := newStore(t, other, seldom)
			store := newStore(t, db, seldom, bunstore.WithQueryHook(&afterFirst{do: func() { drawn = queued(t, comes, request("r", who)) }}))
			place, err := store.Enqueue(t.Context(), request("r", "a"), 1)
			switch {
			case who == "b" && !errors.Is(err, locks.ErrQueueFull):
				t.Errorf("Enqueue = %v, want the queue full", err)
			case who == "a" && (err != nil || place.Waiter() != drawn.Waiter()):
				t.Errorf("Enqueue = %+v, %v; want the ticket that the attempt has, %+v", place, err, drawn.Waiter())
			}
			wantQueue(t, comes, "r", who)
		})
	}
}

// What the table refuses otherwise is a fault.
func TestATableThatRefusesAGrantIsAFault(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom)
	execSQL(t, db, "CREATE TRIGGER hosts BEFORE INSERT ON distributed_locks BEGIN SELECT raise(ABORT, 'the host says no'); END")
	for range 2 {
		err := acquireError(t, store, request("r", "a"))
		_, all := store.AcquireAll(t.Context(), requests("a", "r", "s"))
		for _, err := range []error{err, all} {
			if err == nil || errors.Is(err, locks.ErrHeld) || !strings.Contains(err.Error(), "the host says no") {
				t.Errorf("Acquire = %v, want the table's own words", err)
			}
		}
		execSQL(t, db, "INSERT OR IGNORE INTO distributed_lock_waiters (resource, owner, attempt, channel, since, expires_at) VALUES ('r', 'w', 'k', '', 0, 0)")
	}
}

func TestAcquireAllHeedsTheQueues(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db, seldom)
	for _, r := range requests("a", "r1", "r2", "r3") {
		queued(t, store, r)
	}
	queued(t, store, request("r2", "b"))
	ended := queued(t, store, request("r4", "gone"))
	endTicket(t, db, ended)
	for _, owner := range []string{"outsider", "b"} {
		_, err := store.AcquireAll(t.Context(), requests(owner, "r0", "r2"))
		var held *locks.HeldError
		if !errors.As(err, &held) || held.Resource != "r2" || held.Holder != nil {
			t.Errorf("AcquireAll by %s = %v, want r2 held without a holder", owner, err)
		}
	}
	taken := acquire(t, store, request("r5", "holder"))
	_, err := store.AcquireAll(t.Context(), requests("a", "r1", "r2", "r5"))
	wantHeld(t, err, "r5", taken.Token)
	wantQueue(t, store, "r1", "a")

	barging := requests("outsider", "r3")
	barging[0].Barge = true
	if _, err := store.AcquireAll(t.Context(), barging); err != nil {
		t.Errorf("AcquireAll that barges = %v", err)
	}
	granted, err := store.AcquireAll(t.Context(), requests("a", "r0", "r1", "r2", "r4"))
	if err != nil || len(granted) != 4 {
		t.Fatalf("AcquireAll = %+v, %v", granted, err)
	}
	for resource, owners := range map[string][]string{"r1": nil, "r2": {"b"}, "r3": {"a"}, "r4": nil} {
		wantQueue(t, store, resource, owners...)
	}
}

func TestQueuesOfTwoTables(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	odd := []bunstore.TableOption{bunstore.WithTable(`Odd "name".x`), bunstore.WithSchema("main")}
	if err := bunstore.Migrate(t.Context(), db, odd[0], odd[1]); err != nil {
		t.Fatal(err)
	}
	plain, other := newStore(t, db, seldom), newStore(t, db, seldom, odd[0], odd[1])
	queued(t, other, request("r", "a"))
	wantQueue(t, plain, "r")
	wantQueue(t, other, "r", "a")
	acquire(t, plain, request("r", "outsider"))
	wantRefused(t, other, request("r", "outsider"))
	acquire(t, other, request("r", "a"))
	wantQueue(t, other, "r")
	if report, err := other.Check(t.Context()); err != nil {
		t.Errorf("Check = %+v, %v", report, err)
	}
}
