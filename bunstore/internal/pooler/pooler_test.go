package pooler

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
)

// backends is a pooler, or none, as far as the questions can tell.
type backends struct {
	idle     []int64
	last     bool // takes the one that was used last; otherwise it goes round
	perConn  bool // no pooler: one backend for each connection
	connects int64
	fault    error
}

func (b *backends) take() (int64, error) {
	if len(b.idle) == 0 {
		return 0, errors.New("the question would have waited for the other connection's transaction")
	}
	i := 0
	if b.last {
		i = len(b.idle) - 1
	}
	pid := b.idle[i]
	b.idle = append(b.idle[:i:i], b.idle[i+1:]...)
	return pid, nil
}

func (b *backends) Driver() driver.Driver { return nil }

func (b *backends) Connect(context.Context) (driver.Conn, error) {
	b.connects++
	return &conn{pooler: b, own: b.connects}, nil
}

type conn struct {
	pooler *backends
	own    int64
	held   int64 // the backend of its transaction
}

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c *conn) Close() error                        { return nil }
func (c *conn) Commit() error                       { return errors.New("nothing is to be committed") }

func (c *conn) Begin() (tx driver.Tx, err error) {
	if !c.pooler.perConn {
		c.held, err = c.pooler.take()
	}
	return c, err
}

func (c *conn) Rollback() error {
	if !c.pooler.perConn {
		c.pooler.idle = append(c.pooler.idle, c.held)
		c.held = 0
	}
	return nil
}

func (c *conn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	switch {
	case c.pooler.fault != nil:
		return nil, c.pooler.fault
	case c.pooler.perConn:
		return &row{c.own}, nil
	case c.held != 0:
		return &row{c.held}, nil
	}
	pid, err := c.pooler.take()
	if err != nil {
		return nil, err
	}
	c.pooler.idle = append(c.pooler.idle, pid)
	return &row{pid}, nil
}

type row struct{ pid int64 }

func (*row) Columns() []string { return []string{"pid"} }
func (*row) Close() error      { return nil }
func (r *row) Next(dest []driver.Value) error {
	if r.pid == 0 {
		return io.EOF
	}
	dest[0], r.pid = r.pid, 0
	return nil
}

func TestMultiplexed(t *testing.T) {
	t.Parallel()
	fault := errors.New("connection reset")
	for _, test := range []struct {
		name string
		backends
		want bool
	}{
		{"no pooler", backends{perConn: true}, false},
		{"one backend", backends{idle: []int64{1}}, true},
		{"the one used last", backends{idle: []int64{1, 2, 3}, last: true}, true},
		{"two in turn", backends{idle: []int64{1, 2}}, true},
		{"three in turn", backends{idle: []int64{1, 2, 3}}, true},
		{"many in turn", backends{idle: []int64{1, 2, 3, 4, 5, 6, 7, 8}}, true},
		{"a fault", backends{perConn: true, fault: fault}, false},
	} {
		db := sql.OpenDB(&test.backends)
		a, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Multiplexed(t.Context(), a, b); got != test.want || !errors.Is(err, test.fault) || (err != nil) != (test.fault != nil) {
			t.Errorf("%s: %t, %v; want %t, %v", test.name, got, err, test.want, test.fault)
		}
		a.Close()
		b.Close()
		if n := db.Stats().OpenConnections; n != 2 {
			t.Errorf("%s: %d connections are left, want both", test.name, n)
		}
		db.Close()
	}
}

type stateError string

func (e stateError) Error() string    { return string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestLostStatement(t *testing.T) {
	t.Parallel()
	for state, want := range map[stateError]bool{"26000": true, "42P05": true, "08P01": true, "42P01": false, "": false} {
		if got := LostStatement(fmt.Errorf("wrapped: %w", state)); got != want {
			t.Errorf("LostStatement(%q) = %t, want %t", state, got, want)
		}
	}
	if LostStatement(nil) {
		t.Error("nil is no sign")
	}
}
