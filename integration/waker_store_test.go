package integration_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/pgbouncer"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// onlyHearing keeps a store from looking by itself for longer than any test takes, so that a waiter gets in when it has
// heard.
var onlyHearing = []bunstore.Option{bunstore.WithPoll(time.Hour, time.Hour), bunstore.WithTicketTTL(24 * time.Hour)}

// newWaitingLocker returns a locker whose store waits as the options say, closed with the test.
func newWaitingLocker(tb testing.TB, db *bun.DB, options ...bunstore.Option) *locks.Locker {
	tb.Helper()
	locker, err := locks.New(newStore(tb, db, options...), locks.WithTTL(10*time.Minute))
	if err != nil {
		tb.Fatalf("locks.New: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = locker.Close(ctx)
	})
	return locker
}

// hold acquires at once.
func hold(tb testing.TB, locker *locks.Locker, resource string) *locks.Lease {
	tb.Helper()
	lease, err := locker.TryAcquire(tb.Context(), resource)
	if err != nil {
		tb.Fatalf("TryAcquire(%q): %v", resource, err)
	}
	return lease
}

func letGo(tb testing.TB, lease *locks.Lease) {
	tb.Helper()
	if err := lease.Release(tb.Context()); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// outcome is what a waiter got.
type outcome struct {
	lease *locks.Lease
	err   error
}

// waitFor waits on a goroutine of its own.
func waitFor(t *testing.T, locker *locks.Locker, resource string) <-chan outcome {
	got := make(chan outcome, 1)
	go func() {
		lease, err := locker.Acquire(t.Context(), resource)
		got <- outcome{lease, err}
	}()
	return got
}

// granted waits until a waiter has its lease.
func granted(t *testing.T, got <-chan outcome) *locks.Lease {
	t.Helper()
	o := within(t, "the waiter gets in", got)
	if o.err != nil {
		t.Fatalf("Acquire = %v", o.err)
	}
	return o.lease
}

// queued waits until so many wait, for whatever.
func queued(tb testing.TB, db *bun.DB, want int) {
	tb.Helper()
	eventually(tb, fmt.Sprint(want, " wait"), func() bool {
		return scan[int](tb, db, "SELECT count(*) FROM distributed_lock_waiters") == want
	})
}

// warnings counts what the log is warned of.
type warnings struct {
	slog.Handler
	count atomic.Int64
	again atomic.Int64 // how often all was well again
}

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Level >= slog.LevelWarn:
		w.count.Add(1)
	case r.Level >= slog.LevelInfo:
		w.again.Add(1)
	}
	return nil
}

func (*warnings) Enabled(context.Context, slog.Level) bool { return true }

// forEachWaitingHost runs the test once for each driver, which is the pool's and the waker's.
func forEachWaitingHost(t *testing.T, test func(t *testing.T, name, dsn string)) {
	t.Helper()
	t.Parallel()
	for name := range wakers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, migrated(t, postgres.Shared(t)))
		})
	}
}

// However many wait, there is one connection for it, that of the first is the only one to be opened, and none is there
// when nobody waits.
func TestOneConnectionForAllWaiters(t *testing.T) {
	forEachWaitingHost(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		waiting := newWaitingLocker(t, open(t, name, dsn), append(onlyHearing, bunstore.WithWaker(newWaker(t, name, dsn)))...)
		holding := newWaitingLocker(t, open(t, name, dsn))
		for range 2 {
			letGo(t, hold(t, waiting, "free")) // nobody waits for that
			if n := wakerSessions(t, db); n != 0 {
				t.Errorf("%d connections before anybody waits", n)
			}
			const many = 60
			var held []*locks.Lease
			var got []<-chan outcome
			for i := range many {
				resource := fmt.Sprint("job:", i)
				held = append(held, hold(t, holding, resource))
				got = append(got, waitFor(t, waiting, resource))
			}
			queued(t, db, many)
			eventually(t, "one connection", func() bool { return wakerSessions(t, db) == 1 })
			pid := scan[int](t, db, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rowlease waker'")
			for i := range many {
				letGo(t, held[i])
				letGo(t, granted(t, got[i]))
				if i < many-1 && scan[int](t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rowlease waker' AND pid = ?", pid) != 1 {
					t.Fatal("the connection is another one, or gone, while there are waiters")
				}
			}
			eventually(t, "no connection when nobody waits", func() bool { return wakerSessions(t, db) == 0 })
		}
	})
}

// The connection is lost just when the news comes: what was missed is caught up with.
func TestALostConnectionLosesNoWaiter(t *testing.T) {
	forEachWaitingHost(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		p, proxied := through(t, dsn)
		waiting := newWaitingLocker(t, open(t, name, dsn), append(onlyHearing, bunstore.WithWaker(newWaker(t, name, proxied)))...)
		holding := newWaitingLocker(t, open(t, name, dsn))
		for round := range 6 {
			lease := hold(t, holding, "job:42")
			got := waitFor(t, waiting, "job:42")
			queued(t, db, 1)
			eventually(t, "one connection", func() bool { return wakerSessions(t, db) == 1 })
			lose := func() { terminate(t, db) }
			if round%2 == 1 {
				lose = p.Cut
			}
			var both sync.WaitGroup
			both.Go(func() { letGo(t, lease) })
			both.Go(lose)
			both.Wait()
			letGo(t, granted(t, got))
		}
	})
}

// Each loss is told to the log once, and its end.
func TestTheLogTellsOfALostConnection(t *testing.T) {
	forEachWaitingHost(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		log := &warnings{}
		waiting := newWaitingLocker(t, open(t, name, dsn), append(onlyHearing, bunstore.WithWaker(newWaker(t, name, dsn)), bunstore.WithLogger(slog.New(log)))...)
		lease := hold(t, newWaitingLocker(t, open(t, name, dsn)), "job:42")
		got := waitFor(t, waiting, "job:42")
		queued(t, db, 1)
		for loss := range int64(3) {
			eventually(t, "one connection", func() bool { return wakerSessions(t, db) == 1 })
			terminate(t, db)
			eventually(t, "the log tells that it hears again", func() bool { return log.again.Load() == loss+1 })
			if n := log.count.Load(); n != loss+1 {
				t.Errorf("%d warnings of %d losses", n, loss+1)
			}
		}
		letGo(t, lease)
		letGo(t, granted(t, got))
	})
}

// deafWaker is what can become of a waker: see the cases of the test.
type deafWaker func(ctx context.Context, channel string, listening func(), heard func(string)) error

func (w deafWaker) Listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	return w(ctx, channel, listening, heard)
}

// With every notification dropped all waiters still get in, in their order.
func TestWaitersGetInThoughNothingIsHeard(t *testing.T) {
	t.Parallel()
	for what, waker := range map[string]func(real locks.Waker) locks.Waker{
		"refuses to listen": func(locks.Waker) locks.Waker {
			return deafWaker(func(context.Context, string, func(), func(string)) error { return errors.New("no") })
		},
		"never listens": func(locks.Waker) locks.Waker {
			return deafWaker(func(ctx context.Context, _ string, _ func(), _ func(string)) error {
				<-ctx.Done()
				return ctx.Err()
			})
		},
		"listens and hears nothing": func(real locks.Waker) locks.Waker {
			return deafWaker(func(ctx context.Context, channel string, listening func(), _ func(string)) error {
				return real.Listen(ctx, channel, listening, func(string) {})
			})
		},
		"hears echoes and no turns": func(real locks.Waker) locks.Waker {
			return deafWaker(func(ctx context.Context, channel string, listening func(), heard func(string)) error {
				return real.Listen(ctx, channel, listening, func(payload string) {
					if strings.Contains(payload, "echo") {
						heard(payload)
					}
				})
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t, postgres.Shared(t))
			db := open(t, "pgx", dsn)
			options := func() []bunstore.Option { // the waiters of two processes, so that turns go from one to the other
				return []bunstore.Option{
					bunstore.WithWaker(waker(newWaker(t, "pgx", dsn))), bunstore.WithTicketTTL(3 * time.Second),
					bunstore.WithPoll(10*time.Millisecond, 50*time.Millisecond),
				}
			}
			processes := []*locks.Locker{newWaitingLocker(t, open(t, "pgx", dsn), options()...), newWaitingLocker(t, open(t, "pgdriver", dsn), options()...)}
			lease := hold(t, newWaitingLocker(t, open(t, "pgx", dsn)), "job:42")
			var got []<-chan outcome
			for i := range 8 {
				got = append(got, waitFor(t, processes[i%2], "job:42"))
				queued(t, db, i+1)
			}
			letGo(t, lease)
			for i := range got {
				lease := granted(t, got[i])
				for _, later := range got[i+1:] {
					if len(later) > 0 {
						t.Error("one who came later got in before")
					}
				}
				letGo(t, lease)
			}
		})
	}
}

// Through a pooler in transaction mode the store polls, and says so once, however often it tries again. With a waker that
// leads past the pooler it hears.
func TestWaitersBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	server := postgres.Shared(t)
	bouncer := pgbouncer.Start(t, server, 3)
	for name := range wakers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t, server)
			db := open(t, "pgx", dsn)
			parameters := map[string]string{"pgx": "default_query_exec_mode=exec", "pgdriver": ""}[name]
			pooled := func() *bun.DB { return open(t, name, withParameters(bouncer.DSN(t, dsn), parameters)) }
			holding := newWaitingLocker(t, pooled())
			handOver := func(waiting *locks.Locker, before func()) {
				lease := hold(t, holding, "job:42")
				got := []<-chan outcome{waitFor(t, waiting, "job:42"), waitFor(t, waiting, "job:42")}
				queued(t, db, 2)
				before()
				letGo(t, lease)
				inAnyOrder(t, got)
			}
			var tries atomic.Int64
			log := &warnings{}
			blocked := newWaker(t, name, bouncer.DSN(t, dsn))
			counting := deafWaker(func(ctx context.Context, channel string, listening func(), heard func(string)) error {
				tries.Add(1)
				return blocked.Listen(ctx, channel, listening, heard)
			})
			handOver(newWaitingLocker(t, pooled(), bunstore.WithWaker(counting), bunstore.WithLogger(slog.New(log))), func() {
				eventually(t, "it tries again", func() bool { return tries.Load() >= 3 })
			})
			if warned, well := log.count.Load(), log.again.Load(); warned != 1 || well != 0 {
				t.Errorf("%d warnings, %d times well again; want one warning", warned, well)
			}
			handOver(newWaitingLocker(t, pooled(), append(onlyHearing, bunstore.WithWaker(newWaker(t, name, dsn)))...), func() {})
		})
	}
}

// inAnyOrder waits until each has had its lease, one after another.
func inAnyOrder(t *testing.T, got []<-chan outcome) {
	t.Helper()
	all := make(chan outcome, len(got))
	for _, one := range got {
		go func() { all <- <-one }()
	}
	for range got {
		letGo(t, granted(t, all))
	}
}

// A host whose pool has one connection: nothing that waits keeps it.
func TestWaitersOfAPoolOfOneConnection(t *testing.T) {
	forEachWaitingHost(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		one := func() *bun.DB {
			db := open(t, name, dsn)
			db.SetMaxOpenConns(1)
			return db
		}
		host := one()
		waiting := newWaitingLocker(t, host, bunstore.WithWaker(newWaker(t, name, dsn)))
		holding := newWaitingLocker(t, one())
		lease := hold(t, holding, "job:42")
		var got []<-chan outcome
		for range 10 {
			got = append(got, waitFor(t, waiting, "job:42"))
		}
		queued(t, db, 10)
		exec(t, host, "SELECT 1") // the host's own work goes on
		letGo(t, lease)
		inAnyOrder(t, got)
		if n := scan[int](t, db, "SELECT count(*) FROM distributed_lock_waiters"); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}
