package advisory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
)

// fake is a driver whose answers the test gives: what the statements do is tried on PostgreSQL, here it is what becomes
// of a driver that hangs, or of an answer that is not expected.
type fake struct {
	mu     sync.Mutex
	answer func(statement string, args []driver.NamedValue) (yes bool, backend int64, err error)

	executed []string // what had no answer to give

	asked, opened, closed, looks atomic.Int64

	// multiplexed has one backend behind all connections.
	multiplexed atomic.Bool
}

type pgDialect struct{ *sqlitedialect.Dialect }

func (pgDialect) Name() dialect.Name { return dialect.PG }

func newFake(t *testing.T, answer func(statement string, args []driver.NamedValue) (bool, int64, error)) (*bun.DB, *fake) {
	t.Helper()
	f := &fake{answer: answer}
	db := bun.NewDB(sql.OpenDB(f), pgDialect{sqlitedialect.New()})
	t.Cleanup(func() { db.Close() })
	return db, f
}

// answers makes the next statements be answered so.
func (f *fake) answers(answer func(statement string, args []driver.NamedValue) (bool, int64, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func always(yes bool, backend int64, err error) func(string, []driver.NamedValue) (bool, int64, error) {
	return func(string, []driver.NamedValue) (bool, int64, error) { return yes, backend, err }
}

// kind is what a statement asks for.
func kind(statement string) string {
	switch {
	case strings.Contains(statement, "pg_advisory_unlock"):
		return "unlock"
	case strings.Contains(statement, "pg_advisory_lock"):
		return "wait"
	case strings.Contains(statement, "pg_try_advisory_lock"):
		return "try"
	}
	return "ping"
}

type stateError string

func (s stateError) Error() string    { return "SQLSTATE " + string(s) }
func (s stateError) SQLState() string { return string(s) }

func (f *fake) Driver() driver.Driver { return nil }

func (f *fake) Connect(context.Context) (driver.Conn, error) {
	time.Sleep(time.Millisecond) // in virtual time: others get to connect too
	return &fakeConn{f, f.opened.Add(1)}, nil
}

type fakeConn struct {
	f       *fake
	backend int64
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c *fakeConn) Begin() (driver.Tx, error)           { return fakeTx{}, nil }
func (c *fakeConn) Close() error                        { c.f.closed.Add(1); return nil }

// QueryContext takes no notice of its context.
func (c *fakeConn) QueryContext(_ context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	c.f.asked.Add(1)
	if statement == "SELECT pg_backend_pid()" {
		c.f.looks.Add(1)
		if c.f.multiplexed.Load() {
			return &fakeRows{values: []driver.Value{int64(1)}}, nil
		}
		return &fakeRows{values: []driver.Value{c.backend}}, nil
	}
	c.f.mu.Lock()
	answer := c.f.answer
	c.f.mu.Unlock()
	yes, backend, err := answer(statement, args)
	if err != nil {
		return nil, err
	}
	return &fakeRows{values: []driver.Value{yes, backend}}, nil
}

// ExecContext takes no notice of its context either.
func (c *fakeConn) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.executed = append(c.f.executed, statement)
	return driver.RowsAffected(0), nil
}

type fakeTx struct{}

func (fakeTx) Commit() error   { return nil }
func (fakeTx) Rollback() error { return nil }

type fakeRows struct{ values []driver.Value }

func (r *fakeRows) Columns() []string { return []string{"yes", "backend"}[:max(1, len(r.values))] }
func (*fakeRows) Close() error        { return nil }

func (r *fakeRows) Next(dest []driver.Value) error {
	if r.values == nil {
		return io.EOF
	}
	copy(dest, r.values)
	r.values = nil
	return nil
}
