// Package postgres gives tests a real PostgreSQL.
//
// [Shared] is the server of the whole test process, and what nearly every test
// wants: with [Server.Database] each test has a database of its own on it.
// [Start] is a server for one test, which may then be given other settings, be
// restarted, frozen and killed. A package that uses either has
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
//
// Three variables say where the server comes from:
//
//   - ROWLEASE_POSTGRES_DSN names a running server (a URL, of a role that may
//     create databases). Docker is not used then, and tests that call Start skip.
//   - ROWLEASE_POSTGRES_IMAGE names the Docker image to run.
//   - CI, if not empty, turns "cannot be tested here" from a skip into a failure,
//     so that a pipeline does not go green by testing nothing.
//
// Without them the official image is used where it can be had, and otherwise one
// that is built from Debian packages, see postgres-image/build.sh.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	dsnVariable   = "ROWLEASE_POSTGRES_DSN"
	imageVariable = "ROWLEASE_POSTGRES_IMAGE"
)

// startLimit is how long one container may take to answer. It is generous: the
// machine may be running every package's tests at once.
const startLimit = 2 * time.Minute

// Server is a PostgreSQL server. Its methods take the test that is to fail when
// they cannot do their work; like t.Fatal they belong on the test's goroutine.
type Server struct {
	dsn *url.URL

	// ctr is nil for a server that somebody else runs.
	ctr *container

	// shared servers may have other users at any time: they are not to be
	// stopped, and databases on them have to be dropped.
	shared bool
}

// Start runs a server for this test alone and removes it when the test is over.
// It takes a second or two; use [Shared] unless the test needs a server's
// settings changed or its life interrupted.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()

	if os.Getenv(dsnVariable) != "" {
		tb.Skipf("not tested: %s needs a PostgreSQL server of its own, and with %s set there is only a borrowed one", tb.Name(), dsnVariable)
	}

	s, err := run(tb.Context(), opts)
	requireServer(tb, err)

	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the server's last words:\n%s", tail(s.Logs(tb), 30))
		}
		if err := s.ctr.remove(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("remove the PostgreSQL container: %v", err)
		}
	})

	return s
}

// Shared returns the server that all tests of this process share. The first call
// starts it, [Main] removes it.
func Shared(tb testing.TB) *Server {
	tb.Helper()

	s, err := startShared()
	requireServer(tb, err)

	return s
}

// startShared runs once per process, so that a server that could not be started
// is not tried again by every single test. It has no test's context: the server
// outlives the test that happened to need it first.
var startShared = sync.OnceValues(func() (*Server, error) {
	if dsn := os.Getenv(dsnVariable); dsn != "" {
		return borrow(dsn)
	}

	s, err := run(context.Background(), nil)
	if err != nil {
		return nil, err
	}
	s.shared = true
	running.Store(s)

	return s, nil
})

// running is what Main has to remove.
var running atomic.Pointer[Server]

// Main runs the tests, removes the shared server and returns the exit code. A
// process that is killed, or panics, does not get that far; its containers are
// removed by the next one that starts, see removeLeftovers.
func Main(m *testing.M) int {
	code := m.Run()

	if s := running.Load(); s != nil {
		if err := s.ctr.remove(context.Background()); err != nil {
			fmt.Fprintf(os.Stderr, "remove the shared PostgreSQL container: %v\n", err)
		}
	}

	return code
}

// DSN is the URL of the server's first database, which pgx and pgdriver both
// understand. It stays the same, and valid, over [Server.Restart] and the like.
func (s *Server) DSN() string { return s.dsn.String() }

// run starts a server in a container of its own.
func run(ctx context.Context, opts []Option) (*Server, error) {
	env, err := prepare()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	ctr, err := env.run(ctx, newSettings(opts))
	if err != nil {
		return nil, err
	}

	return &Server{dsn: ctr.dsn(), ctr: ctr}, nil
}

// borrow uses a server that somebody else runs.
func borrow(dsn string) (*Server, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		// The DSN is not repeated: it holds a password.
		return nil, fmt.Errorf("%s is not a URL like postgres://user:password@host:port/database?sslmode=disable", dsnVariable)
	}

	return &Server{dsn: u, shared: true}, nil
}

// unavailableError says that this machine cannot run PostgreSQL, as opposed to a
// server that should have run and did not, which is always a failure.
type unavailableError struct{ reason string }

func (e *unavailableError) Error() string { return e.reason }

func unavailable(format string, args ...any) error {
	return &unavailableError{reason: fmt.Sprintf(format, args...)}
}

// requireServer ends the test if there is no server.
func requireServer(tb testing.TB, err error) {
	tb.Helper()

	if err == nil {
		return
	}
	if _, ok := errors.AsType[*unavailableError](err); ok && os.Getenv("CI") == "" {
		tb.Skipf("not tested: %s on PostgreSQL: %v", tb.Name(), err)
	}
	tb.Fatalf("PostgreSQL for %s: %v", tb.Name(), err)
}
