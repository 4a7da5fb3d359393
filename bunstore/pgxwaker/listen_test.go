package pgxwaker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// listened runs Listen to its end in virtual time, and looks that nothing is left open.
func listened(ctx context.Context, t *testing.T, s *server) (heard []string, took time.Duration, err error) {
	t.Helper()
	start := time.Now()
	err = s.waker(t).Listen(ctx, "a", func() { heard = append(heard, "listening") }, func(payload string) { heard = append(heard, payload) })
	took = time.Since(start)
	synctest.Wait()
	if open, _, _ := s.state(); open != 0 {
		t.Errorf("%d connections are left open", open)
	}
	if err == nil {
		t.Error("Listen returned no error")
	}
	return heard, took, err
}

// A server that says nothing is given up, at each step; the context is heeded at each.
func TestListenGivesUpOnASilentServer(t *testing.T) {
	for step, s := range map[string]func() *server{
		"connecting": func() *server { return &server{silent: true} },
		"asking":     func() *server { return &server{answer: func(int, string) string { return "-" }} },
		"looking for a pooler": func() *server {
			return &server{answer: func(conn int, statement string) string {
				if conn > 1 {
					return "-"
				}
				return own(conn, statement)
			}}
		},
		"listening": func() *server {
			return &server{answer: func(conn int, statement string) string {
				if strings.HasPrefix(statement, "LISTEN") {
					return "-"
				}
				return own(conn, statement)
			}}
		},
	} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard, took, err := listened(t.Context(), t, s())
				if !errors.Is(err, context.DeadlineExceeded) || took < limit || took > limit+2*closeLimit || len(heard) > 0 {
					t.Errorf("heard %q, Listen = %v after %v; want DeadlineExceeded after %v", heard, err, took, limit)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				if _, took, err := listened(ctx, t, s()); !errors.Is(err, context.Canceled) || took > time.Second+2*closeLimit {
					t.Errorf("Listen = %v after %v, want the context's end", err, took)
				}
			})
		})
	}
}

// A pooler in transaction mode is found, whichever backend it gives whom, and no backend is made to listen; one in
// session mode is none.
func TestListenFindsAPooler(t *testing.T) {
	for mode, c := range map[string]struct {
		backend func(conn, question int) int
		found   bool
	}{
		"one backend":          {func(int, int) int { return 1 }, true},
		"round robin":          {func(_, question int) int { return question % 3 }, true},
		"another later":        {func(conn, question int) int { return conn + 10*(question/7) }, true},
		"a backend for itself": {func(conn, _ int) int { return conn }, false},
	} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				questions := 0
				s := &server{answer: func(conn int, statement string) string {
					if !strings.Contains(statement, "pg_backend_pid") {
						return ""
					}
					questions++
					return string(rune('A' + c.backend(conn, questions)))
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				heard, _, err := listened(ctx, t, s)
				_, made, listens := s.state()
				if errors.Is(err, ErrPooler) != c.found || listens == c.found || (len(heard) > 0) == c.found || made != 2 {
					t.Errorf("%d connections, listens: %v, heard %q, Listen = %v; want a pooler found: %v", made, listens, heard, err, c.found)
				}
			})
		})
	}
}

// What comes between, before its time, or for somebody else.
func TestListenPassesOnWhatIsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{
			answer: own,
			beside: []pgproto3.BackendMessage{notice("a", "early"), &pgproto3.NoticeResponse{Severity: "NOTICE"}, notice("b", "no")},
			after:  []pgproto3.BackendMessage{notice("b", "no"), &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, notice("a", ""), notice("a", "late")},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		heard, _, err := listened(ctx, t, s)
		early := len(heard) - 3
		if early < 1 || heard[0] != "listening" || slices.Contains(heard, "no") || !slices.Equal(heard[1+early:], []string{"", "late"}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("heard %q, Listen = %v; want what is sent on the channel, in its order, once it listens", heard, err)
		}
	})
}

// A connection that the server refuses is closed.
func TestListenClosesWhatTheServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{refuse: &pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"}}
		if _, _, err := listened(t.Context(), t, s); !strings.Contains(err.Error(), "28P01") {
			t.Errorf("Listen = %v, want the server's words", err)
		}
	})
}

// The server's error is told in its words, and a connection that is the server's own needs no second one.
func TestListenReturnsTheServersError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answer: direct, after: []pgproto3.BackendMessage{&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "going down"}}}
		heard, took, err := listened(t.Context(), t, s)
		var fault *pgconn.PgError
		if _, made, _ := s.state(); !errors.As(err, &fault) || fault.Code != "57P01" || took > 2*closeLimit || made != 1 || len(heard) != 1 {
			t.Errorf("%d connections, heard %q, Listen = %v after %v; want the error at once", made, heard, err, took)
		}
	})
}
