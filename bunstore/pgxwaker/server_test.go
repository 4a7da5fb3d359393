package pgxwaker

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// server speaks so much of the protocol that a waker takes it for PostgreSQL. It is reached through net.Pipe, so that
// virtual time passes.
type server struct {
	mu    sync.Mutex
	asked []string // every statement, of whichever connection
	open  int      // connections that the waker has not closed
	made  int

	silent bool                                          // even to a connection that is made
	refuse pgproto3.BackendMessage                       // is the answer to a connection that is made
	answer func(conn int, statement string) (row string) // "-" for none at all
	beside []pgproto3.BackendMessage                     // are sent after each answer and before it is over
	after  []pgproto3.BackendMessage                     // are sent when LISTEN has been answered
}

func (s *server) waker(t *testing.T) *Waker {
	t.Helper()
	config, err := pgx.ParseConfig("host=h user=u sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) { return s.dial(), nil }
	w, err := NewFromConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *server) dial() net.Conn {
	client, conn := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	s.made++
	go s.serve(conn, s.made)
	return &tracked{Conn: client, closed: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	})}
}

// tracked tells when it is closed.
type tracked struct {
	net.Conn
	closed func()
}

func (c *tracked) Close() error {
	c.closed()
	return c.Conn.Close()
}

// pid is how the server introduces itself on every connection.
const pid = 7

func (s *server) serve(conn net.Conn, number int) {
	defer conn.Close()
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	ready := &pgproto3.ReadyForQuery{TxStatus: 'I'}
	out := []pgproto3.BackendMessage{&pgproto3.AuthenticationOk{}, &pgproto3.BackendKeyData{ProcessID: pid, SecretKey: 8}, ready}
	if s.refuse != nil {
		out = []pgproto3.BackendMessage{s.refuse}
	} else if s.silent {
		out = nil
	}
	for {
		for _, message := range out {
			backend.Send(message)
		}
		if err := backend.Flush(); err != nil {
			return
		}
		message, err := backend.Receive()
		query, ok := message.(*pgproto3.Query)
		if err != nil || !ok {
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, query.String)
		row := s.answer(number, query.String)
		s.mu.Unlock()
		if out = nil; row == "-" {
			continue
		}
		out = slices.Concat([]pgproto3.BackendMessage{&pgproto3.DataRow{Values: [][]byte{[]byte(row)}}}, s.beside, []pgproto3.BackendMessage{ready})
		if strings.HasPrefix(query.String, "LISTEN") {
			out = append(out, s.after...)
		}
	}
}

// state returns how many connections are open, how many were made, and whether one was told to listen.
func (s *server) state() (open, made int, listens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.made, slices.ContainsFunc(s.asked, func(statement string) bool { return strings.HasPrefix(statement, "LISTEN") })
}

func notice(channel, payload string) pgproto3.BackendMessage {
	return &pgproto3.NotificationResponse{PID: 1, Channel: channel, Payload: payload}
}

// direct is the server itself, without a pooler.
func direct(_ int, statement string) string {
	if strings.Contains(statement, "pg_backend_pid") {
		return "7"
	}
	return ""
}

// own gives each connection a backend of its own, through a pooler.
func own(conn int, statement string) string {
	if strings.Contains(statement, "pg_backend_pid") {
		return string(rune('0' + conn))
	}
	return ""
}
