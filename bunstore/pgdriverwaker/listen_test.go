package pgdriverwaker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
			beside: slices.Concat(notice("a", "early"), newMessage('N', []byte("SNOTICE\x00\x00")), notice("b", "no")),
			after:  slices.Concat(notice("b", "no"), newMessage('S', []byte("TimeZone\x00UTC\x00")), notice("a", ""), notice("a", "late")),
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

// A connection that the server refuses is closed: the driver leaves it open.
func TestListenClosesWhatTheServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{refuse: newMessage('E', []byte("SFATAL\x00VFATAL\x00C28P01\x00Mno\x00\x00"))}
		if _, _, err := listened(t.Context(), t, s); !strings.Contains(err.Error(), "28P01") {
			t.Errorf("Listen = %v, want the server's words", err)
		}
	})
}

// Whatever a server sends ends in an error that tells.
func TestListenRefusesWhatIsNotTheProtocol(t *testing.T) {
	for what, c := range map[string]struct {
		instead []byte
		want    string
	}{
		"the server's error":  {newMessage('E', []byte("SFATAL\x00C57P01\x00Mgoing down\x00\x00")), "FATAL: going down (SQLSTATE=57P01)"},
		"an empty error":      {newMessage('E', nil), "SQLSTATE="},
		"a huge message":      {[]byte("A\x7f\xff\xff\xff"), "protocol"},
		"a negative length":   {[]byte("A\x00\x00\x00\x00"), "protocol"},
		"a short notice":      {newMessage('A', []byte("\x00")), "protocol"},
		"a notice cut off":    {newMessage('A', []byte("\x00\x00\x00\x01a\x00b")), "protocol"},
		"a short row":         {newMessage('D', []byte("\x00")), "protocol"},
		"a value beyond rows": {newMessage('D', []byte("\x00\x01\x00\x00\x00\x09x")), "protocol"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if _, took, err := listened(t.Context(), t, &server{answer: own, instead: c.instead}); !strings.Contains(err.Error(), c.want) || took > 2*closeLimit {
					t.Errorf("Listen = %v after %v, want %q at once", err, took, c.want)
				}
			})
		})
	}
}
