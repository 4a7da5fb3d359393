package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// requests are one of the owner for each resource.
func requests(owner string, resources ...string) []locks.Request {
	all := make([]locks.Request, len(resources))
	for i, resource := range resources {
		all[i] = request(resource, owner)
	}
	return all
}

func acquireAll(tb testing.TB, store *bunstore.Store, requests []locks.Request) []locks.Lock {
	tb.Helper()
	granted, err := store.AcquireAll(tb.Context(), requests)
	if err != nil {
		tb.Fatalf("AcquireAll of %d: %v", len(requests), err)
	}
	return granted
}

// wantRefusedAll fails unless nothing is granted because the resource is held: by the owner, or by nobody known where
// that is empty.
func wantRefusedAll(tb testing.TB, store *bunstore.Store, all []locks.Request, resource, owner string) {
	tb.Helper()
	granted, err := store.AcquireAll(tb.Context(), all)
	var held *locks.HeldError
	if !errors.As(err, &held) || granted != nil || held.Resource != resource || (held.Holder != nil) != (owner != "") {
		tb.Errorf("AcquireAll = %+v, %v; want held for %q by %q", granted, err, resource, owner)
	} else if owner != "" && (held.Holder.Owner != owner || held.Remaining <= 0 || held.Remaining != held.Holder.Remaining) {
		tb.Errorf("held by %+v for %v, want %q", held.Holder, held.Remaining, owner)
	}
}

// gates counts the advisory locks in the database.
func gates(tb testing.TB, db *bun.DB) int {
	tb.Helper()
	return scan[int](tb, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

type afterQuery func()

func (afterQuery) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }
func (h afterQuery) AfterQuery(context.Context, *bun.QueryEvent)                      { h() }

// What refuses is told as far as it is known, and nothing of the refused call stays: no row, and no gate.
func TestARefusedAcquireAllLeavesNothing(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		tried := 0 // the gates that the refused call has while its transaction is open
		hook := afterQuery(func() { tried = gates(t, db) })
		store, other := newStore(t, open(t, driver, dsn), bunstore.WithQueryHook(hook)), newStore(t, open(t, driver, dsn))
		acquire(t, other, request("d", "w2"))
		acquire(t, other, request("f", "w3"))
		ended := acquire(t, other, request("b", "w2"))
		exec(t, db, "UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE resource = 'b'")
		all := requests("w1", "f", "e", "d", "c", "b", "a")
		wantRefusedAll(t, store, all, "d", "w2")

		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		lock := `SELECT pg_advisory_xact_lock(hashtextextended(? COLLATE "C", 'distributed_locks'::regclass::oid::bigint))`
		for _, shut := range []string{"c", "e"} { // as a transaction that acquires them
			if _, err := tx.ExecContext(t.Context(), lock, shut); err != nil {
				t.Fatal(err)
			}
		}
		wantRefusedAll(t, store, all, "d", "w2") // a holder who is known goes before a gate
		if tried != 2 {
			t.Errorf("%d gates are taken beside a known holder, want the transaction's 2", tried)
		}
		wantRefusedAll(t, store, requests("w1", "e", "cc", "c", "b", "a"), "c", "") // not the free ones, which were not come to
		if tried != 2+2 {
			t.Errorf("%d gates are taken, want the transaction's 2, and 2 up to the one that was shut", tried)
		}
		if n := gates(t, db); n != 2 {
			t.Errorf("%d gates are taken, want the transaction's 2", n)
		}
		acquireAll(t, other, requests("w4", "a", "g")) // no gate of theirs was left shut
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks WHERE owner = 'w1' OR token > ? AND owner <> 'w4'", ended.Token); n != 0 {
			t.Errorf("%d rows of the refused calls", n)
		}
		granted := acquireAll(t, store, requests("w1", "e", "c", "b"))
		if granted[2].ID != ended.ID || granted[2].Token <= ended.Token {
			t.Errorf("taken over as %+v, from %+v", granted[2], ended)
		}
		if n := gates(t, db); n != 0 {
			t.Errorf("%d gates are taken after the grant", n)
		}
	})
}

// Sets that overlap, in opposite orders at once: exactly one of the two gets all, whatever the default isolation, nobody
// ever sees a part, and the server has nothing to log.
func TestAcquireAllAtOnce(t *testing.T) {
	t.Parallel()
	const size, rounds = 6, 150
	server := postgres.Start(t)
	for driver, level := range map[string]string{"pgdriver": "read committed", "pgx": "serializable"} {
		t.Run(driver+" "+level, func(t *testing.T) {
			dsn := migrated(t, server)
			byDefault(t, open(t, driver, dsn), "default_transaction_isolation", "'"+level+"'")
			stores := make([]*bunstore.Store, 2)
			for i := range stores {
				stores[i] = newStore(t, open(t, driver, dsn), bunstore.WithCallLimit(time.Minute))
			}
			over, seen := make(chan struct{}), open(t, driver, dsn)
			var reader sync.WaitGroup
			reader.Go(func() { wantNoPart(t, seen, size, over) })
			for round := range rounds {
				var sets [2][]locks.Request
				for i := range size {
					sets[0] = append(sets[0], request(fmt.Sprintf("%d:%02d", round, i), fmt.Sprint("w0 ", round)))
					sets[1] = append(sets[1], request(fmt.Sprintf("%d:%02d", round, size+size/2-1-i), fmt.Sprint("w1 ", round)))
				}
				var calls sync.WaitGroup
				var errs [2]error
				for i := range stores {
					calls.Go(func() { _, errs[i] = stores[i].AcquireAll(t.Context(), sets[i]) })
				}
				calls.Wait()
				if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), locks.ErrHeld) {
					t.Errorf("round %d: errors %v, want one grant, and one refusal", round, errs)
				}
			}
			close(over)
			reader.Wait()
			if n := scan[int](t, seen, "SELECT count(*) FROM distributed_locks"); n != size*rounds {
				t.Errorf("%d rows, want %d", n, size*rounds)
			}
		})
	}
	if log := server.Logs(t); containsAny(log, "ERROR:", "deadlock", "could not serialize", "duplicate key") {
		t.Errorf("the server logged errors:\n%s", log)
	}
}

// wantNoPart looks at the table until over is closed: each owner has all of its leases or none.
func wantNoPart(tb testing.TB, db *bun.DB, size int, over <-chan struct{}) {
	for {
		var parts int
		err := db.NewRaw(`SELECT count(*) FROM (SELECT 1 FROM distributed_locks GROUP BY owner HAVING count(*) <> ?) AS part`, size).
			Scan(tb.Context(), &parts)
		if err != nil || parts > 0 {
			tb.Errorf("%d owners are seen with a part of their leases; %v", parts, err)
			return
		}
		select {
		case <-over:
			return
		default:
		}
	}
}

// waitingAll is an AcquireAll of a, b and c that has all gates and waits for the row of a, which ended and is locked.
func waitingAll(t *testing.T, driver, dsn string, ttl time.Duration) (db *bun.DB, goOn func() ([]locks.Lock, error)) {
	t.Helper()
	db = open(t, driver, dsn)
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, open(t, driver, dsn), bunstore.WithCallLimit(time.Minute))
	acquire(t, store, request("a", "w0"))
	exec(t, db, "UPDATE distributed_locks SET expires_at = clock_timestamp()")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM distributed_locks FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	all := requests("w1", "c", "b", "a")
	for i := range all {
		all[i].TTL = ttl
	}
	var granted []locks.Lock
	done := make(chan error, 1)
	go func() {
		var err error
		granted, err = store.AcquireAll(t.Context(), all)
		done <- err
	}()
	eventually(t, "AcquireAll waits for the row", waitingForLocks(t, db))
	return db, func() ([]locks.Lock, error) {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		err := <-done
		return granted, err
	}
}

// The statement got a part, since somebody was faster with one of them: the part is undone.
func TestAcquireAllThatGotAPartUndoesIt(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db, goOn := waitingAll(t, driver, dsn, time.Minute)
		// By hand: who asks the store finds the gate shut.
		exec(t, db, `INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
			VALUES ('b', 'w2', nextval('distributed_locks_token_seq'), 'x', clock_timestamp(), clock_timestamp() + interval '1 hour')`)
		granted, err := goOn()
		var held *locks.HeldError
		if !errors.As(err, &held) || granted != nil || held.Resource != "b" || held.Holder == nil || held.Holder.Owner != "w2" {
			t.Errorf("AcquireAll = %+v, %v; want held for b by w2", granted, err)
		}
		if got := scan[string](t, db, "SELECT string_agg(resource || owner, ' ' ORDER BY resource) FROM distributed_locks"); got != "aw0 bw2" {
			t.Errorf("the rows are %q, want those of before", got)
		}
	})
}

// A lease that is taken over begins when the wait for its row is over.
func TestAcquireAllCountsFromTheEndOfAWait(t *testing.T) {
	t.Parallel()
	db, goOn := waitingAll(t, "pgx", postgres.Shared(t).Database(t), time.Minute)
	waiting := scan[time.Time](t, db, "SELECT clock_timestamp()")
	granted, err := goOn()
	if err != nil {
		t.Fatal(err)
	}
	if a := granted[2]; a.AcquiredAt.Before(waiting) || a.ExpiresAt.Sub(a.AcquiredAt) != time.Minute {
		t.Errorf("granted %+v from before %v, when it waited", a, waiting)
	}
}

// The leases were over before the statement could tell of them: they are undone, and asked for again.
func TestAcquireAllThatWaitedBeyondItsLeases(t *testing.T) {
	t.Parallel()
	const ttl = 300 * time.Millisecond
	db, goOn := waitingAll(t, "pgx", postgres.Shared(t).Database(t), ttl)
	since := scan[time.Time](t, db, "SELECT clock_timestamp()")
	var later time.Time
	eventually(t, "the leases are over", func() bool {
		later = scan[time.Time](t, db, "SELECT clock_timestamp()")
		return later.Sub(since) > ttl
	})
	granted, err := goOn()
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range granted {
		if lock.Remaining <= 0 || lock.AcquiredAt.Before(later) || lock.ExpiresAt.Sub(lock.AcquiredAt) != ttl {
			t.Errorf("granted %+v at an instant before %v", lock, later)
		}
	}
}

// All rows come, and then the commit fails: nothing is granted, and it is no answer.
func TestAcquireAllWhoseCommitFails(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		exec(t, db, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'at commit'; END $$`)
		exec(t, db, `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON distributed_locks DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (new.resource = 'b') EXECUTE FUNCTION fail()`)
		store := newStore(t, db)
		granted, err := store.AcquireAll(t.Context(), requests("w1", "a", "b"))
		if err == nil || granted != nil || errors.Is(err, locks.ErrHeld) || errors.Is(err, locks.ErrRetryable) {
			t.Errorf("AcquireAll = %+v, %v; want the fault of the commit", granted, err)
		}
		if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
		acquireAll(t, store, requests("w2", "a", "c"))
	})
}

// The commit waits for the disk where the database's default is not to: a token must not come again after a crash.
func TestAcquireAllIsDurable(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	byDefault(t, open(t, "pgx", dsn), "synchronous_commit", "off")
	db := open(t, "pgx", dsn)
	exec(t, db, "CREATE TABLE commits (how text)")
	exec(t, db, `CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO commits VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$`)
	exec(t, db, `CREATE TRIGGER note AFTER INSERT OR UPDATE ON distributed_locks EXECUTE FUNCTION note()`)
	store := newStore(t, db)
	acquireAll(t, store, requests("w1", "a", "b"))
	for _, next := range requests("w1", "b", "a") {
		next.Attempt = "next"
		acquireAll(t, store, []locks.Request{next})
	}
	if got := scan[string](t, db, "SELECT string_agg(DISTINCT how, ' ') FROM commits"); got != "on" {
		t.Errorf("synchronous_commit was %q, want on", got)
	}
}

// A context that ends while the statement runs is told as such, and leaves nothing behind.
func TestAcquireAllWhoseContextEnds(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		exec(t, db, `CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN new; END $$`)
		exec(t, db, `CREATE TRIGGER hang BEFORE INSERT ON distributed_locks FOR EACH ROW WHEN (new.resource = 'b') EXECUTE FUNCTION hang()`)
		store := newStore(t, open(t, driver, dsn))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		granted, err := store.AcquireAll(ctx, requests("w1", "a", "b"))
		if !errors.Is(err, context.DeadlineExceeded) || granted != nil || errors.Is(err, locks.ErrHeld) {
			t.Errorf("AcquireAll = %+v, %v; want context.DeadlineExceeded", granted, err)
		}
		eventually(t, "the call's gates are open", func() bool {
			exec(t, db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
			return gates(t, db) == 0
		})
		if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}
