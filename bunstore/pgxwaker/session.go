package pgxwaker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// closeLimit bounds how long the server is told goodbye.
const closeLimit = time.Second

// session is a connection that pgx has opened and handed over. pgx itself would, on a failure, send a request to cancel
// from a goroutine that goes on for up to 15 s; here nothing is to be cancelled, and nothing runs on.
type session struct {
	conn     net.Conn
	frontend *pgproto3.Frontend
	pid      uint32         // as the server, or the pooler, has introduced itself
	early    []notification // what was heard beside answers
}

// notification is what somebody has sent.
type notification struct{ channel, payload string }

// open connects, and tells the kernel to notice within about a minute that nobody is there any more.
func (w *Waker) open(ctx context.Context) (*session, error) {
	config := w.config.Copy()
	if w.beforeConnect != nil {
		if err := w.beforeConnect(ctx, config); err != nil {
			return nil, fmt.Errorf("BeforeConnect: %w", err)
		}
	}
	connected, err := pgconn.ConnectConfig(ctx, &config.Config)
	if err != nil {
		return nil, err
	}
	hijacked, err := connected.Hijack()
	if err != nil {
		return nil, errors.Join(err, connected.Conn().Close())
	}
	keepAlive(hijacked.Conn)
	return &session{conn: hijacked.Conn, frontend: hijacked.Frontend, pid: hijacked.PID}, nil
}

func keepAlive(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
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
	s.frontend.Send(&pgproto3.Terminate{})
	_ = s.frontend.Flush()
	_ = s.conn.Close()
}

// ask sends statements, and returns the first column of the last row, "" for none.
func (s *session) ask(statements string) (answer string, err error) {
	s.frontend.Send(&pgproto3.Query{String: statements})
	if err := s.frontend.Flush(); err != nil {
		return "", err
	}
	for {
		message, err := s.receive()
		if err != nil {
			return "", err
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			if len(m.Values) > 0 {
				answer = string(m.Values[0])
			}
		case *pgproto3.NotificationResponse:
			s.early = append(s.early, notification{m.Channel, m.Payload})
		case *pgproto3.ReadyForQuery:
			return answer, nil
		}
	}
}

// hear passes on what is notified on the channel.
func (s *session) hear(channel string, heard func(string)) error {
	for {
		message, err := s.receive()
		if err != nil {
			return err
		}
		if n, ok := message.(*pgproto3.NotificationResponse); ok && n.Channel == channel {
			heard(n.Payload)
		}
	}
}

// receive returns the next message. After an error of the server's the session is not used any more.
func (s *session) receive() (pgproto3.BackendMessage, error) {
	message, err := s.frontend.Receive()
	if err != nil {
		return nil, fmt.Errorf("connection failed: %w", err)
	}
	if e, ok := message.(*pgproto3.ErrorResponse); ok {
		return nil, pgconn.ErrorResponseToPgError(e)
	}
	return message, nil
}
