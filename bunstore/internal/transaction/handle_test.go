package transaction_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// wrapper is a handle around another one, such as a *bunstore.Tx.
type wrapper struct{ bun.IDB }

func (w wrapper) Unwrap() bun.IDB { return w.IDB }

func TestUsable(t *testing.T) {
	t.Parallel()
	sqldb := sql.OpenDB(nil)
	defer sqldb.Close()
	db := bun.NewDB(sqldb, sqlitedialect.New())
	begun := bun.Tx{Tx: new(sql.Tx)}
	for _, handle := range []bun.IDB{db, begun, &begun, bun.Conn{Conn: new(sql.Conn)}} {
		for _, handle := range []bun.IDB{handle, wrapper{handle}, wrapper{wrapper{handle}}} {
			if err := transaction.Usable(handle); err != nil {
				t.Errorf("%T: %v", handle, err)
			}
		}
	}
	for _, handle := range []bun.IDB{nil, (*bun.DB)(nil), bun.Tx{}, (*bun.Tx)(nil), new(bun.Tx), bun.Conn{}, (*bun.Conn)(nil), new(bun.Conn)} {
		for _, handle := range []bun.IDB{handle, wrapper{handle}, wrapper{wrapper{handle}}} {
			var invalid *locks.InvalidError
			if err := transaction.Usable(handle); !errors.As(err, &invalid) || invalid.Field != "db" {
				t.Errorf("%T: %v, want an InvalidError of the db", handle, err)
			}
		}
	}
}
