package advisory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// connection is one that was taken out of the pool. It is used by one goroutine at a time, which in doubt discards it:
// PostgreSQL frees what its session held.
type connection struct {
	conn    *sql.Conn
	backend int64 // that granted the lock
}

// giveBack puts the connection back into the pool.
func (c *connection) giveBack() {
	_ = c.conn.Close() // it has no answer that would change anything
}

// discard closes the connection instead: it must not come back into the pool with a lock on it. It waits for a driver
// that is still at work on it.
func (c *connection) discard() {
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // that is the error it returns
	_ = c.conn.Close()                                           // for the connection that was closed already
}

// ping looks whether the backend that granted the lock still answers. Otherwise it discards the connection.
func (c *connection) ping(ctx context.Context) error {
	_, backend, err := ask(ctx, c.conn, pingStatement)
	if err == nil {
		err = c.same(backend)
	}
	if err != nil {
		c.discard()
	}
	return err
}

// unlock frees the lock and gives the connection back, or in any doubt discards it. It returns false when the server
// knew nothing of the lock.
func (c *connection) unlock(ctx context.Context, statement string, key int64) (bool, error) {
	freed, backend, err := ask(ctx, c.conn, statement, key)
	if err == nil {
		err = c.same(backend)
	}
	if err != nil || !freed {
		c.discard()
		return false, err
	}
	c.giveBack()
	return true, nil
}

// same is the last line against a pooler that was not found out: the backend has to be the one of the lock.
func (c *connection) same(backend int64) error {
	if backend != c.backend {
		return fmt.Errorf("%w: backend %d answers for backend %d", ErrPooler, backend, c.backend)
	}
	return nil
}
