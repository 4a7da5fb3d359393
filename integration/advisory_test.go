package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// advisoryLocker has a generous limit for calls unless the test sets its own.
func advisoryLocker(t *testing.T, db *bun.DB, options ...advisory.LockerOption) *advisory.Locker {
	t.Helper()
	locker, err := advisory.New(db, append([]advisory.LockerOption{advisory.WithCallLimit(time.Minute)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return locker
}

// onePool has one connection, so that the next statement meets whatever came back into the pool.
func onePool(t *testing.T, driver, dsn string, options ...advisory.LockerOption) (*bun.DB, *advisory.Locker) {
	t.Helper()
	db := open(t, driver, dsn)
	db.SetMaxOpenConns(1)
	return db, advisoryLocker(t, db, append(options, advisory.WithoutPoolerCheck())...)
}

func lockNow(t *testing.T, locker *advisory.Locker, name string, options ...advisory.Option) *advisory.Session {
	t.Helper()
	session, err := locker.TryLock(t.Context(), name, options...)
	if err != nil {
		t.Fatalf("TryLock(%q) = %v", name, err)
	}
	return session
}

// lockEventually is for a locker whose limit a slow machine may not meet.
func lockEventually(t *testing.T, locker *advisory.Locker, name string) (session *advisory.Session) {
	t.Helper()
	eventually(t, "a session lock", func() bool {
		var err error
		session, err = locker.TryLock(t.Context(), name)
		return err == nil
	})
	return session
}

func unlock(t *testing.T, session *advisory.Session) {
	t.Helper()
	if err := session.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock(%q) = %v", session.Name(), err)
	}
}

func held(t *testing.T, what string, err error) {
	t.Helper()
	var answer *locks.HeldError
	if !errors.As(err, &answer) || answer.Holder != nil {
		t.Errorf("%s: %v, want held by an unknown holder", what, err)
	}
}

// canLock tells whether another pool gets the lock; it gives it back.
func canLock(t *testing.T, other *advisory.Locker, name string) func() bool {
	return func() bool {
		t.Helper()
		session, err := other.TryLock(t.Context(), name)
		if err != nil {
			held(t, "TryLock", err)
			return false
		}
		unlock(t, session)
		return true
	}
}

const advisoryLocks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

func TestAdvisorySession(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		other := open(t, driver, dsn)
		others := advisoryLocker(t, other)

		t.Run("shared and exclusive", func(t *testing.T) {
			mine := advisoryLocker(t, open(t, driver, dsn))
			for _, second := range []*advisory.Locker{mine, others} {
				for _, test := range []struct {
					first, second []advisory.Option
					granted       bool
				}{
					{nil, nil, false},
					{nil, []advisory.Option{advisory.Shared()}, false},
					{[]advisory.Option{advisory.Shared()}, nil, false},
					{[]advisory.Option{advisory.Shared()}, []advisory.Option{advisory.Shared()}, true},
				} {
					first := lockNow(t, mine, "account:4711", test.first...)
					lockNow(t, second, "account:4712").Unlock(t.Context())
					again, err := second.TryLock(t.Context(), "account:4711", test.second...)
					switch {
					case test.granted && err != nil:
						t.Errorf("shared beside shared: %v", err)
					case test.granted:
						unlock(t, again)
					default:
						held(t, "the second", err)
					}
					unlock(t, first)
				}
			}
			if n := scan[int](t, other, advisoryLocks); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})

		t.Run("the connection comes back", func(t *testing.T) {
			db, mine := onePool(t, driver, dsn)
			backend := scan[int](t, db, "SELECT pg_backend_pid()")
			session := lockNow(t, mine, "a")
			held(t, "another pool", func() error { _, err := others.TryLock(t.Context(), "a"); return err }())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := mine.TryLock(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryLock without a connection: %v, want the deadline", err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := session.Unlock(ended); err != nil {
				t.Errorf("Unlock with an ended context: %v", err)
			}
			if !canLock(t, others, "a")() {
				t.Error("the lock is still held")
			}
			if again := scan[int](t, db, "SELECT pg_backend_pid()"); again != backend {
				t.Errorf("backend %d after the unlock, want %d", again, backend)
			}
		})

		t.Run("a wait and its limit", func(t *testing.T) {
			db, mine := onePool(t, driver, dsn)
			backend := scan[int](t, db, "SELECT pg_backend_pid()")
			holder := lockNow(t, others, "a")
			_, err := mine.Lock(t.Context(), "a", advisory.WithLimit(20*time.Millisecond))
			held(t, "after the limit", err)
			if got := scan[string](t, db, "SHOW lock_timeout"); got != "0" {
				t.Errorf("lock_timeout is left at %s", got)
			}
			if again := scan[int](t, db, "SELECT pg_backend_pid()"); again != backend {
				t.Errorf("backend %d after a refusal, want %d", again, backend)
			}
			granted := make(chan error, 1)
			go func() {
				session, err := mine.Lock(t.Context(), "a", advisory.WithLimit(time.Minute))
				if err == nil {
					err = session.Unlock(t.Context())
				}
				granted <- err
			}()
			eventually(t, "the second waits", waitingForLocks(t, other))
			unlock(t, holder)
			if err := within(t, "the waiter's answer", granted); err != nil {
				t.Errorf("the waiter: %v", err)
			}
			if got := scan[string](t, db, "SHOW lock_timeout"); got != "0" {
				t.Errorf("lock_timeout is left at %s after a wait", got)
			}
			if n := scan[int](t, other, advisoryLocks); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})

		t.Run("a waiter that is gone", func(t *testing.T) {
			_, mine := onePool(t, driver, dsn)
			holder := lockNow(t, others, "a")
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan error, 1)
			go func() {
				_, err := mine.Lock(ctx, "a", advisory.WithLimit(time.Minute))
				answered <- err
			}()
			eventually(t, "the second waits", waitingForLocks(t, other))
			cancel()
			if err := within(t, "the waiter's answer", answered); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock = %v, want context.Canceled", err)
			}
			unlock(t, holder)
			eventually(t, "the lock is free", canLock(t, others, "a"))
			eventually(t, "the pool has its connection back", canLock(t, mine, "a"))
		})

		t.Run("a backend that is ended", func(t *testing.T) {
			db, mine := onePool(t, driver, dsn, advisory.WithPingInterval(advisory.MinPingInterval))
			backend := scan[int](t, db, "SELECT pg_backend_pid()")
			session := lockNow(t, mine, "a")
			exec(t, other, "SELECT pg_terminate_backend(?)", backend)
			within(t, "the holder is told", session.Context().Done())
			if cause := context.Cause(session.Context()); !errors.Is(cause, locks.ErrLost) {
				t.Errorf("cause %v, want ErrLost", cause)
			}
			eventually(t, "the lock is free", canLock(t, others, "a"))
			if err := session.Unlock(t.Context()); !errors.Is(err, locks.ErrLost) {
				t.Errorf("Unlock = %v, want ErrLost", err)
			}
			if !canLock(t, mine, "a")() {
				t.Error("the pool has not replaced the connection")
			}
		})

		t.Run("a backend that is ended between two pings", func(t *testing.T) {
			db, mine := onePool(t, driver, dsn, advisory.WithPingInterval(time.Hour))
			backend := scan[int](t, db, "SELECT pg_backend_pid()")
			session := lockNow(t, mine, "a")
			exec(t, other, "SELECT pg_terminate_backend(?)", backend)
			eventually(t, "the lock is free", canLock(t, others, "a"))
			if err := session.Unlock(t.Context()); !errors.Is(err, locks.ErrLost) {
				t.Errorf("Unlock = %v, want ErrLost", err)
			}
		})
	})
}

// The server ends sessions that are idle for longer than it allows; the holder is told.
func TestAdvisorySessionIdleTimeout(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	admin := open(t, "pgx", dsn)
	exec(t, admin, fmt.Sprintf("ALTER DATABASE %q SET idle_session_timeout = '200ms'", scan[string](t, admin, "SELECT current_database()")))
	locker := advisoryLocker(t, open(t, "pgx", dsn), advisory.WithoutPoolerCheck(), advisory.WithPingInterval(500*time.Millisecond))
	session := lockEventually(t, locker, "a") // a machine that stands still for that long ends it early
	within(t, "the holder is told", session.Context().Done())
	if err := session.Unlock(t.Context()); !errors.Is(err, locks.ErrLost) {
		t.Errorf("Unlock = %v, want ErrLost", err)
	}
}

// Names whose 32-bit hashes are equal do not keep each other out.
func TestAdvisoryNamesOfEqualHash(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	locker := advisoryLocker(t, db)
	hashtext := scan[string](t, db, `SELECT min(name) || ' ' || max(name) FROM (SELECT 'job:' || i AS name FROM generate_series(1, 150000) AS i) AS names
GROUP BY hashtext(name) HAVING count(*) > 1 LIMIT 1`)
	var a, b string
	if n, err := fmt.Sscan(hashtext, &a, &b); n != 2 {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{a, b}, {"plumless", "buckeroo"}} { // the second by CRC-32
		first := lockNow(t, locker, pair[0])
		unlock(t, lockNow(t, locker, pair[1]))
		unlock(t, first)
	}
}
