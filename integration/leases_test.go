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

// migrated returns the DSN of a fresh database with the lease table.
func migrated(tb testing.TB, server *postgres.Server) string {
	tb.Helper()
	dsn := server.Database(tb)
	if err := bunstore.Migrate(tb.Context(), open(tb, "pgx", dsn)); err != nil {
		tb.Fatalf("Migrate: %v", err)
	}
	return dsn
}

// newLocker returns a locker that is closed with the test.
func newLocker(tb testing.TB, db *bun.DB, options ...locks.Option) *locks.Locker {
	tb.Helper()
	locker, err := locks.New(newStore(tb, db), options...)
	if err != nil {
		tb.Fatalf("locks.New: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = locker.Close(ctx)
	})
	return locker
}

func request(resource, owner string) locks.Request {
	return locks.Request{Resource: resource, Owner: owner, Attempt: "attempt of " + owner, TTL: time.Minute}
}

func acquire(tb testing.TB, store *bunstore.Store, r locks.Request) locks.Lock {
	tb.Helper()
	lock, err := store.Acquire(tb.Context(), r)
	if err != nil {
		tb.Fatalf("Acquire(%+v): %v", r, err)
	}
	return lock
}

// eventually waits for a condition that something outside of the test brings about.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within 30 s: %s", what)
		}
	}
}

// within receives what something outside of the test sends or closes.
func within[T any](tb testing.TB, what string, from <-chan T) (received T) {
	tb.Helper()
	select {
	case received = <-from:
	case <-time.After(30 * time.Second):
		tb.Fatalf("not within 30 s: %s", what)
	}
	return received
}

// waitingForLocks tells whether some session of the database waits for a lock.
func waitingForLocks(tb testing.TB, db *bun.DB) func() bool {
	return func() bool {
		tb.Helper()
		return scan[int](tb, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}
}

// Contention is an answer under every default isolation level, and never an error in the server's log.
func TestContentionUnderEveryDefaultIsolation(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	for driver := range drivers {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(driver+" "+level, func(t *testing.T) {
				dsn := migrated(t, server)
				byDefault(t, open(t, driver, dsn), "default_transaction_isolation", "'"+level+"'")
				stores := make([]*bunstore.Store, 2)
				for i := range stores {
					db := open(t, driver, dsn)
					db.SetMaxOpenConns(12)
					stores[i] = newStore(t, db, bunstore.WithCallLimit(time.Minute))
				}
				var wg sync.WaitGroup
				results := make(chan error, 50)
				for i := range 50 {
					wg.Go(func() {
						_, err := stores[i%2].Acquire(t.Context(), request("one", fmt.Sprint("w", i)))
						results <- err
					})
				}
				wg.Wait()
				close(results)
				granted := 0
				for err := range results {
					switch {
					case err == nil:
						granted++
					case !errors.Is(err, locks.ErrHeld):
						t.Errorf("err = %v, want held or granted", err)
					}
				}
				if granted != 1 {
					t.Errorf("%d grants of one resource, want 1", granted)
				}
				for i := range 24 {
					wg.Go(func() {
						for range 20 {
							r := request(fmt.Sprint("own ", i), "w")
							lock, err := stores[i%2].Acquire(t.Context(), r)
							if err == nil {
								err = stores[i%2].Release(t.Context(), lock.Grant())
							}
							if err != nil {
								t.Errorf("unrelated resources: %v", err)
							}
						}
					})
				}
				wg.Wait()
				contendInTransactions(t, stores)
			})
		}
	}
	if log := server.Logs(t); containsAny(log, "ERROR:", "could not serialize", "duplicate key") {
		t.Errorf("the server logged errors:\n%s", log)
	}
}

// A session whose own default is stricter than the one that the store asked for first.
func TestASessionWithAnotherIsolationThanTheFirst(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	db.SetMaxOpenConns(1)
	store := newStore(t, db)
	acquire(t, store, request("a", "w1")) // the store has seen READ COMMITTED
	exec(t, db, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
	for i := range 50 {
		lock := acquire(t, store, request("b", fmt.Sprint("w", i)))
		if err := store.Release(t.Context(), lock.Grant()); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewal that met a locked row until its lease was over is refused, though the row did not change meanwhile.
func TestARenewalThatWaitedBeyondItsLeaseIsRefused(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db, bunstore.WithGuardLimit(30*time.Second), bunstore.WithCallLimit(time.Minute))
		r := request("job:42", "w1")
		r.TTL = 2 * time.Second
		lock := acquire(t, store, r)

		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM distributed_locks WHERE resource = 'job:42' FOR SHARE"); err != nil {
			t.Fatal(err)
		}
		renewed, released := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := store.Renew(t.Context(), lock.Grant(), time.Minute)
			renewed <- err
		}()
		go func() { released <- store.Release(t.Context(), lock.Grant()) }()
		waiting := waitingForLocks(t, db) // the renewal passes over the row, and asks again
		eventually(t, "the release waits for the row, or is refused", func() bool { return len(released) > 0 || waiting() })
		eventually(t, "the lease is over", func() bool {
			_, err := store.Get(t.Context(), "job:42")
			return errors.Is(err, locks.ErrNotFound)
		})
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-renewed; !errors.Is(err, locks.ErrLost) { // expired, or not held where the release was first
			t.Errorf("Renew = %v, want ErrLost", err)
		}
		if err := <-released; !errors.Is(err, locks.ErrLost) {
			t.Errorf("Release = %v, want ErrLost", err)
		}
	})
}

// An acquire that waited behind a transaction, here one that changes the row by hand and without the gate, does not
// hand out a lease that is over.
func TestAnAcquireThatWaitedGetsAWholeLease(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		store := newStore(t, db)
		const endedRow = `INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
			VALUES ('job:42', 'x', 900000, 'x', now(), now() - interval '1 hour')`
		for what, statements := range map[string][2]string{
			"insert rolled back": {"SELECT 1", `INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
				VALUES ('job:42', 'x', 900000, 'x', now(), now() + interval '1 hour')`},
			"ended row touched": {endedRow, `UPDATE distributed_locks SET metadata = '{}'`},
			"ended row deleted": {endedRow, `DELETE FROM distributed_locks`},
		} {
			exec(t, db, "TRUNCATE distributed_locks")
			exec(t, db, statements[0])
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), statements[1]); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				lock locks.Lock
				err  error
			}
			answers := make(chan answer, 1)
			r, least := request("job:42", "w1"), 300*time.Millisecond
			r.TTL = 400 * time.Millisecond
			if what == "ended row touched" { // taken over in place: its times are those after the wait, to the letter
				r.TTL, least = 2*time.Second, 1700*time.Millisecond
			}
			go func() {
				lock, err := store.Acquire(t.Context(), r)
				answers <- answer{lock, err}
			}()
			eventually(t, "the acquire waits", waitingForLocks(t, db))
			exec(t, db, "SELECT pg_sleep(0.5)") // the TTL passes on the database's clock
			end := tx.Commit
			if what == "insert rolled back" {
				end = tx.Rollback
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			got := <-answers
			if got.err != nil || got.lock.Remaining < least {
				t.Errorf("%s: Acquire = %v left, %v; want a whole lease", what, got.lock.Remaining, got.err)
			}
		}
	})
}

// The row comes, and then the commit fails: a deferred constraint does that. Nobody has the lease.
func TestAGrantWhoseCommitFailsIsNone(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		if err := bunstore.Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		exec(t, db, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'at commit'; END $$`)
		exec(t, db, `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON distributed_locks DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fail()`)
		store := newStore(t, db)
		if lock, err := store.Acquire(t.Context(), request("job:42", "w1")); err == nil || errors.Is(err, locks.ErrHeld) {
			t.Errorf("Acquire = %+v, %v; want the fault of the commit", lock, err)
		}
		if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); n != 0 {
			t.Errorf("%d rows, want none", n)
		}
	})
}

// A row that ended is taken over in an open transaction when the purge comes: the new lease stays.
func TestPurgeLeavesARowThatIsJustTakenOver(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	store := newStore(t, db)
	acquire(t, store, request("job:42", "w1"))
	exec(t, db, "UPDATE distributed_locks SET expires_at = clock_timestamp()")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE distributed_locks SET owner = 'w2', token = token + 1, expires_at = clock_timestamp() + interval '1 hour'"); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Purge(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("Purge = %d, %v; want the row skipped at once", n, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Purge(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	if lock, err := store.Get(t.Context(), "job:42"); err != nil || lock.Owner != "w2" {
		t.Errorf("Get = %+v, %v; want the new lease", lock, err)
	}
}

// What decides is the database's clock in UTC, whatever zone the server, a session or a process is in; TTLs are
// durations, also over a change to or from summer time.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, postgres.Setting("TimeZone", "America/St_Johns"))
	dsn := migrated(t, server)
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			one, two := open(t, driver, dsn), open(t, driver, dsn)
			two.SetMaxOpenConns(1)
			exec(t, two, "SET TimeZone = 'Asia/Kolkata'")
			first, second := newStore(t, one), newStore(t, two)
			r := request("zone "+driver, "w1")
			r.TTL = 24 * time.Hour
			lock := acquire(t, first, r)
			if got := lock.ExpiresAt.Sub(lock.AcquiredAt); got != 24*time.Hour || lock.Remaining > 24*time.Hour {
				t.Errorf("lease of %v with %v left, want 24 h", got, lock.Remaining)
			}
			if _, err := second.Acquire(t.Context(), request("zone "+driver, "w2")); !errors.Is(err, locks.ErrHeld) {
				t.Errorf("Acquire in another zone = %v, want held", err)
			}
			seen, err := second.Get(t.Context(), "zone "+driver)
			if err != nil || !seen.ExpiresAt.Equal(lock.ExpiresAt) || !seen.AcquiredAt.Equal(lock.AcquiredAt) || seen.ExpiresAt.Location() != time.UTC {
				t.Errorf("seen from another zone: %+v, %v; want %+v", seen, err, lock)
			}
			exec(t, two, "SET TimeZone = 'Europe/Amsterdam'")
			if renewed, err := second.Renew(t.Context(), lock.Grant(), 24*time.Hour); err != nil || renewed.Remaining < 24*time.Hour-time.Minute {
				t.Errorf("Renew = %v left, %v; want 24 h", renewed.Remaining, err)
			}
		})
	}
}

// A refused try writes nothing at all.
func TestARefusedTryWritesNoWAL(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t, postgres.Setting("autovacuum", "off"))
	db := open(t, "pgx", migrated(t, server))
	store := newStore(t, db)
	acquire(t, store, request("job:42", "w1"))
	exec(t, db, "VACUUM distributed_locks") // hint bits are WAL with checksums, and set once
	refuse := func() {
		if _, err := store.Acquire(t.Context(), request("job:42", "w2")); !errors.Is(err, locks.ErrHeld) {
			t.Fatalf("Acquire = %v, want held", err)
		}
	}
	refuse()
	var least int64 = 1 << 40 // the server itself writes now and then
	for range 10 {
		before := scan[int64](t, db, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		for range 20 {
			refuse()
		}
		least = min(least, scan[int64](t, db, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")-before)
	}
	if least != 0 {
		t.Errorf("20 refused tries wrote %d bytes of WAL, want none", least)
	}
}
