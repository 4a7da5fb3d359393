package integration_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/rowlease/rowlease/bunstore/pgdriverwaker"
	"github.com/rowlease/rowlease/bunstore/pgxwaker"
	"github.com/rowlease/rowlease/integration/internal/pgbouncer"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// wakers are those of the two modules.
var wakers = map[string]func(dsn string) (locks.Waker, error){
	"pgx":      func(dsn string) (locks.Waker, error) { return pgxwaker.New(dsn) },
	"pgdriver": func(dsn string) (locks.Waker, error) { return pgdriverwaker.New(dsn) },
}

func newWaker(tb testing.TB, name, dsn string) locks.Waker {
	tb.Helper()
	waker, err := wakers[name](dsn)
	if err != nil {
		tb.Fatal(err)
	}
	return waker
}

// forEachWaker runs the test once for each waker, on a database of its own.
func forEachWaker(t *testing.T, test func(t *testing.T, name, dsn string)) {
	t.Helper()
	t.Parallel()
	for name := range wakers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, postgres.Shared(t).Database(t))
		})
	}
}

// listener is one call of Listen.
type listener struct {
	listening chan struct{}
	heard     chan string
	ended     chan error
	end       context.CancelFunc
}

func listen(t *testing.T, waker locks.Waker, channel string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &listener{listening: make(chan struct{}), heard: make(chan string, 1000), ended: make(chan error, 1), end: cancel}
	go func() {
		l.ended <- waker.Listen(ctx, channel, func() { close(l.listening) }, func(payload string) { l.heard <- payload })
	}()
	return l
}

// hearing waits until it listens.
func (l *listener) hearing(t *testing.T) *listener {
	t.Helper()
	select {
	case err := <-l.ended:
		t.Fatalf("Listen = %v before it listened", err)
	default:
	}
	within(t, "listening", l.listening)
	return l
}

// stop ends it, and looks at what it returned.
func (l *listener) stop(t *testing.T) {
	t.Helper()
	l.end()
	if err := within(t, "Listen returns when its context has ended", l.ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen = %v, want context.Canceled", err)
	}
}

// sessions is how many sessions of that name the database has.
func sessions(tb testing.TB, db *bun.DB, name string) int {
	tb.Helper()
	return scan[int](tb, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = ?", name)
}

// wakerSessions are those of wakers, when nobody has named them otherwise.
func wakerSessions(tb testing.TB, db *bun.DB) int { return sessions(tb, db, "rowlease waker") }

func terminate(tb testing.TB, db *bun.DB) {
	tb.Helper()
	exec(tb, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rowlease waker'")
}

// withParameter returns a DSN with one more parameter.
func withParameter(tb testing.TB, dsn, name, value string) string {
	tb.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestAWakerHears(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		waker := newWaker(t, name, dsn)
		l, other := listen(t, waker, "rowlease_a").hearing(t), listen(t, waker, "select").hearing(t)
		long := strings.Repeat("x", 7999)
		for _, payload := range []string{"1", "", "ein Überraschungsei", long} {
			exec(t, db, "SELECT pg_notify('rowlease_a', ?)", payload)
			if got := within(t, "the notification", l.heard); got != payload {
				t.Errorf("heard %.20q, want %.20q", got, payload)
			}
		}
		tx := begin(t, db, nil)
		for i := range 500 {
			if _, err := tx.ExecContext(t.Context(), "SELECT pg_notify('rowlease_a', ?), pg_notify('select', 'beside')", strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			if got := within(t, "the notifications of one transaction", l.heard); got != strconv.Itoa(i) {
				t.Fatalf("heard %q as number %d", got, i)
			}
		}
		if got := within(t, "what is sent on the other channel", other.heard); got != "beside" || len(l.heard) > 0 {
			t.Errorf("heard %q, and %d more on the first channel; want each channel for itself", got, len(l.heard))
		}
		if n := wakerSessions(t, db); n != 2 {
			t.Errorf("%d sessions, want one for each Listen", n)
		}
		l.stop(t)
		other.stop(t)
		eventually(t, "the connections are closed", func() bool { return wakerSessions(t, db) == 0 })
	})
}

// What the host has named keeps its name.
func TestAWakerIsCalledAsTheHostSays(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		l := listen(t, newWaker(t, name, withParameter(t, dsn, "application_name", "shop")), "a").hearing(t)
		if shop, ours := sessions(t, db, "shop"), wakerSessions(t, db); shop != 1 || ours != 0 {
			t.Errorf("%d sessions called as the host says, %d by our own name; want 1 and 0", shop, ours)
		}
		l.stop(t)
	})
}

// A configuration that the host has made in Go.
func TestAWakerOfAConfiguration(t *testing.T) {
	t.Parallel()
	dsn := postgres.Shared(t).Database(t)
	db := open(t, "pgx", dsn)
	config, err := pgx.ParseConfig(withParameter(t, dsn, "password", "wrong"))
	if err != nil {
		t.Fatal(err)
	}
	right, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := pgxwaker.NewFromConfig(config, pgxwaker.WithBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = right.Password
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	made, err := pgdriverwaker.NewFromConnector(pgdriver.NewConnector(pgdriver.WithDSN(dsn), pgdriver.WithConnParams(map[string]any{"work_mem": "1MB"})))
	if err != nil {
		t.Fatal(err)
	}
	for _, waker := range []locks.Waker{fresh, made} {
		l := listen(t, waker, "a").hearing(t)
		exec(t, db, "NOTIFY a, 'b'")
		within(t, "the notification", l.heard)
		l.stop(t)
	}
	if config.RuntimeParams["application_name"] != "" || config.Password == right.Password {
		t.Error("the host's own configuration was changed")
	}
	refused := errors.New("no password today")
	waker, err := pgxwaker.NewFromConfig(config, pgxwaker.WithBeforeConnect(func(context.Context, *pgx.ConnConfig) error { return refused }))
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t, "Listen ends", listen(t, waker, "a").ended); !errors.Is(err, refused) {
		t.Errorf("Listen = %v, want the hook's error", err)
	}
}

// A context that ends at whatever instant, also while the connection is being made.
func TestAWakerEndsWithItsContext(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		p, proxied := through(t, dsn)
		waker := newWaker(t, name, proxied)
		for _, held := range []bool{false, true} {
			p.HoldReplies(held)
			for range 10 {
				for _, wait := range []func(){
					func() {}, // it has hardly begun
					func() { eventually(t, "connected", func() bool { return wakerSessions(t, db) > 0 }) },
				} {
					l := listen(t, waker, "a")
					if !held {
						wait()
					}
					l.stop(t)
				}
			}
		}
		p.HoldReplies(false)
		l := listen(t, waker, "a").hearing(t)
		l.stop(t)
		eventually(t, "no connection is left", func() bool { return wakerSessions(t, db) == 0 })
	})
}

func TestAWakerReturnsWhenItsConnectionFails(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		p, proxied := through(t, dsn)
		waker := newWaker(t, name, proxied)
		for what, fail := range map[string]func(){
			"terminated": func() { terminate(t, db) },
			"cut":        p.Cut,
		} {
			l := listen(t, waker, "a").hearing(t)
			fail()
			err := within(t, "Listen returns: "+what, l.ended)
			if err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("%s: Listen = %v, want what was wrong", what, err)
			}
			if what == "terminated" && !strings.Contains(err.Error(), "57P01") {
				t.Errorf("%s: Listen = %v, want the server's own words", what, err)
			}
			eventually(t, "no connection is left", func() bool { return wakerSessions(t, db) == 0 })
		}
		listen(t, waker, "a").hearing(t).stop(t)
	})
}

// A network that swallows everything, without a word: Listen hears nothing, and ends with its context all the same.
func TestAWakerInABlackHole(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		p, proxied := through(t, dsn)
		waker := newWaker(t, name, proxied)
		l := listen(t, waker, "a").hearing(t)
		p.HoldRequests(true)
		p.HoldReplies(true)
		exec(t, open(t, "pgx", dsn), "NOTIFY a, 'b'")
		l.stop(t)
		if len(l.heard) > 0 {
			t.Error("heard through a black hole")
		}
		// Nor can a connection be made, and that is not tried for ever.
		err := within(t, "Listen gives up to connect", listen(t, waker, "a").ended)
		if err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("Listen = %v, want that nobody answers", err)
		}
	})
}

// A wrong password, a database that is not there, and a channel that is no identifier.
func TestAWakerThatTheServerRefuses(t *testing.T) {
	server := postgres.Shared(t)
	t.Parallel()
	for name := range wakers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := server.Database(t)
			for what, change := range map[string]func(u *url.URL){
				"28P01": func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "geheimnis") },
				"3D000": func(u *url.URL) { u.Path = "/no_such_database" },
			} {
				u, err := url.Parse(direct)
				if err != nil {
					t.Fatal(err)
				}
				change(u)
				err = within(t, "Listen returns", listen(t, newWaker(t, name, u.String()), "a").ended)
				if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "geheimnis") {
					t.Errorf("Listen = %v, want SQLSTATE %s and no password", err, what)
				}
			}
			for _, channel := range []string{"", "Big", "a b", `a"; DROP TABLE distributed_locks; --`, "1a", strings.Repeat("a", 64)} {
				if err := within(t, "Listen returns", listen(t, newWaker(t, name, direct), channel).ended); err == nil || !strings.Contains(err.Error(), "plain identifier") {
					t.Errorf("Listen on %q = %v, want it refused", channel, err)
				}
			}
		})
	}
}

// The server ends sessions that are idle; one that listens is not one of those.
func TestAWakerOutlivesTheIdleTimeout(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		if scan[int](t, db, "SELECT current_setting('server_version_num')::int") < 140000 {
			t.Skip("this server has no idle_session_timeout")
		}
		byDefault(t, db, "idle_session_timeout", "100")
		l := listen(t, newWaker(t, name, dsn), "a").hearing(t)
		exec(t, db, "SELECT pg_sleep(0.5)") // the timeout passes on the database's clock
		exec(t, open(t, "pgx", dsn), "NOTIFY a, 'b'")
		within(t, "the notification", l.heard)
		l.stop(t)
	})
}

// Through a pooler in transaction mode it refuses to listen, and so leaves no backend listening for somebody else.
func TestAWakerFindsAPooler(t *testing.T) {
	t.Parallel()
	server := postgres.Shared(t)
	for _, size := range []int{1, 4} {
		bouncer := pgbouncer.Start(t, server, size)
		for name := range wakers {
			direct := server.Database(t)
			waker := newWaker(t, name, bouncer.DSN(t, direct))
			for range 3 {
				err := within(t, "Listen returns", listen(t, waker, "a").ended)
				if !errors.Is(err, pgxwaker.ErrPooler) && !errors.Is(err, pgdriverwaker.ErrPooler) {
					t.Errorf("%s, %d backends: Listen = %v, want ErrPooler", name, size, err)
				}
			}
			pooled := open(t, name, bouncer.DSN(t, direct))
			pooled.SetMaxOpenConns(size)
			for range 10 {
				if n := scan[int](t, pooled, "SELECT count(*) FROM pg_listening_channels()"); n != 0 {
					t.Fatalf("%s, %d backends: one of them listens", name, size)
				}
			}
		}
	}
}

// Many at once, of one waker.
func TestAWakerIsSafeForConcurrentUse(t *testing.T) {
	forEachWaker(t, func(t *testing.T, name, dsn string) {
		db := open(t, "pgx", dsn)
		waker := newWaker(t, name, dsn)
		var all []*listener
		for range 8 {
			all = append(all, listen(t, waker, "a"))
		}
		for _, l := range all {
			l.hearing(t)
		}
		exec(t, db, "NOTIFY a, 'b'")
		for _, l := range all {
			within(t, "the notification", l.heard)
		}
		for _, l := range slices.Backward(all) {
			l.stop(t)
		}
	})
}
