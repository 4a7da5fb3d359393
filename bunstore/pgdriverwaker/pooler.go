package pgdriverwaker

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// rounds of questions. One finds a pooler that is at rest; others' use of it can make one round look as without.
const rounds = 2

const backend = `SELECT pg_backend_pid()`

// checkPooler returns [ErrPooler] if the session does not keep its backend. To listen all the same would leave somebody
// else's session listening, and its driver confused by what it never asked for.
func (w *Waker) checkPooler(ctx context.Context, a *session) error {
	port, err := a.ask(`SELECT inet_client_port()`)
	if err != nil || port != "" && port == localPort(a.conn) {
		return err // the server sees this very connection
	}
	first, err := a.ask(backend)
	if err != nil {
		return err
	}
	b, err := w.open(ctx)
	if err != nil {
		return fmt.Errorf("second connection, to look for a pooler in transaction mode: %w", err)
	}
	defer b.close()
	defer b.until(ctx)()
	for range rounds {
		if err := sharing(a, b, first); err != nil {
			return err
		}
	}
	return nil
}

func localPort(conn net.Conn) string {
	tcp, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	return strconv.Itoa(tcp.Port)
}

// sharing asks b within a transaction, a during that, and a twice after it. The backend that served a's first question
// is the likeliest to serve b's transaction; while b keeps it, a gets another one; and a pooler that goes round its
// backends gives a another one for each question.
func sharing(a, b *session, first string) error {
	other, err := b.ask(`BEGIN; ` + backend)
	if err == nil && other == first {
		err = ErrPooler // known by now: a pooler with one backend would let a wait for b's transaction
	}
	for i := 0; err == nil && i < 3; i++ {
		if i == 1 {
			if _, err := b.ask(`ROLLBACK`); err != nil {
				return err
			}
		}
		var again string
		if again, err = a.ask(backend); err == nil && again != first {
			err = ErrPooler
		}
	}
	return err
}
