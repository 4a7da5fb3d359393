package pgdriverwaker

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uptrace/bun/driver/pgdriver"
)

// server speaks so much of the protocol that a waker takes it for PostgreSQL. It is reached through net.Pipe, so that
// virtual time passes.
type server struct {
	mu    sync.Mutex
	asked []string // every statement, of whichever connection
	open  int      // connections that the waker has not closed
	made  int

	refuse  []byte                                        // is the answer to a connection that is made
	silent  bool                                          // even to a connection that is made
	answer  func(conn int, statement string) (row string) // "-" for none at all
	beside  []byte                                        // is sent after each answer and before it is over
	instead []byte                                        // is sent in place of the answer to LISTEN
	after   []byte                                        // is sent when LISTEN has been answered
}

func (s *server) waker(t *testing.T) *Waker {
	t.Helper()
	w, err := NewFromConnector(pgdriver.NewConnector(pgdriver.WithInsecure(true), pgdriver.WithUser("u"), func(c *pgdriver.Config) {
		c.Dialer = func(context.Context, string, string) (net.Conn, error) { return s.dial(), nil }
	}))
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

func (s *server) serve(conn net.Conn, number int) {
	defer conn.Close()
	if _, err := startup(conn); err != nil {
		return
	}
	if s.silent || s.refuse != nil {
		conn.Write(s.refuse)
		io.Copy(io.Discard, conn)
		return
	}
	ready := newMessage('Z', []byte("I"))
	if _, err := conn.Write(slices.Concat(newMessage('R', make([]byte, 4)), newMessage('K', []byte("\x00\x00\x00\x07\x00\x00\x00\x00")), ready)); err != nil {
		return
	}
	for {
		kind, body, err := readMessage(conn)
		if err != nil || kind == terminateMessage {
			return
		}
		statement := strings.TrimSuffix(string(body), "\x00")
		s.mu.Lock()
		s.asked = append(s.asked, statement)
		row := s.answer(number, statement)
		s.mu.Unlock()
		if row == "-" {
			continue
		}
		value := binary.BigEndian.AppendUint32([]byte{0, 1}, uint32(len(row)))
		out := slices.Concat(newMessage('D', append(value, row...)), s.beside, ready)
		if strings.HasPrefix(statement, "LISTEN") {
			if s.instead != nil {
				out = s.instead
			}
			out = append(out, s.after...)
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// startup reads the message that has no kind.
func startup(conn net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:])-4)
	_, err := io.ReadFull(conn, body)
	return body, err
}

// state returns how many connections are open, how many were made, and whether one was told to listen.
func (s *server) state() (open, made int, listens bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.made, slices.ContainsFunc(s.asked, func(statement string) bool { return strings.HasPrefix(statement, "LISTEN") })
}

func notice(channel, payload string) []byte {
	return newMessage('A', []byte("\x00\x00\x00\x01"+channel+"\x00"+payload+"\x00"))
}

// own gives each connection a backend of its own.
func own(conn int, statement string) string {
	if strings.Contains(statement, "pg_backend_pid") {
		return string(rune('0' + conn))
	}
	return ""
}
