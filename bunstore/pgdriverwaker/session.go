package pgdriverwaker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/uptrace/bun/driver/pgdriver"
)

// closeLimit bounds how long the server is told goodbye.
const closeLimit = time.Second

// session is a connection that pgdriver has opened, and does not use any more: it cannot read what comes unasked but
// through its Listener, which says that it listens before the server has agreed, and connects anew by itself when it
// should tell.
type session struct {
	conn  net.Conn
	in    *bufio.Reader
	early []notification // what was heard beside answers
}

// open connects, and tells the kernel to notice within about a minute that nobody is there any more.
func (w *Waker) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var line line
	config := *w.config
	config.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := w.config.Dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		keepAlive(conn)
		return conn, line.set(conn)
	}
	// The driver reads with deadlines of its own and does not look at the context's cancellation; and what it
	// cannot make a connection of, it leaves open.
	stop := context.AfterFunc(ctx, line.close)
	driven, err := pgdriver.NewConnector(pgdriver.WithConfig(&config)).Connect(ctx)
	if !stop() || errors.Is(err, os.ErrDeadlineExceeded) { // ctx's time, or the driver's own
		err = fmt.Errorf("not connected in time: %w", errors.Join(context.DeadlineExceeded, err))
	}
	if err != nil {
		line.close()
		return nil, err
	}
	made, ok := driven.(*pgdriver.Conn)
	if !ok {
		line.close()
		return nil, errors.New("the driver's connection is of another kind")
	}
	// What the driver has read beyond its last answer stays with it; nothing but a notice comes before LISTEN.
	conn := made.Conn() // line's, or TLS on that
	_ = conn.SetDeadline(time.Time{})
	return &session{conn: conn, in: bufio.NewReader(conn)}, nil
}

// line is the connection below the driver's.
type line struct {
	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

func (l *line) set(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	if l.closed {
		return errors.Join(net.ErrClosed, conn.Close())
	}
	return nil
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

func keepAlive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Where the system cannot, it is as the dialer made it.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3})
	}
}

// until lets all that waits for the network fail when ctx ends. stop reports whether that has not happened.
func (s *session) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
}

// close ends the session. What is sent goes into the kernel's buffer, so that it is rarely waited for at all.
func (s *session) close() {
	_ = s.conn.SetDeadline(time.Now().Add(closeLimit))
	_ = s.send(terminateMessage, nil)
	_ = s.conn.Close()
}

func (s *session) send(kind byte, body []byte) error {
	_, err := s.conn.Write(newMessage(kind, body))
	return err
}

// ask sends statements, and returns the first column of the last row, "" for none.
func (s *session) ask(statements string) (answer string, err error) {
	if err := s.send(queryMessage, append([]byte(statements), 0)); err != nil {
		return "", fmt.Errorf("connection failed: %w", err)
	}
	for {
		kind, body, err := s.receive()
		if err != nil {
			return "", err
		}
		switch kind {
		case dataRow:
			if answer, err = parseRow(body); err != nil {
				return "", err
			}
		case notificationResponse:
			n, err := parseNotification(body)
			if err != nil {
				return "", err
			}
			s.early = append(s.early, n)
		case readyForQuery:
			return answer, nil
		}
	}
}

// hear passes on what is notified on the channel.
func (s *session) hear(channel string, heard func(string)) error {
	for {
		kind, body, err := s.receive()
		if err != nil {
			return err
		}
		if kind != notificationResponse {
			continue
		}
		n, err := parseNotification(body)
		if err != nil {
			return err
		}
		if n.channel == channel {
			heard(n.payload)
		}
	}
}

// receive returns the next message. After an error of the server's the session is not used any more.
func (s *session) receive() (kind byte, body []byte, err error) {
	kind, body, err = readMessage(s.in)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, nil, fmt.Errorf("connection failed: %w", err)
	}
	if kind == errorResponse {
		return 0, nil, serverError(body)
	}
	return kind, body, nil
}
