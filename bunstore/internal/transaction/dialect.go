package transaction

import (
	"fmt"

	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/locks"
)

// NeedPostgres refuses, as an [*locks.InvalidError], another dialect; onSQLite says why, and what to use there.
func NeedPostgres(d schema.Dialect, onSQLite string) error {
	switch name := d.Name(); name {
	case dialect.PG:
		return nil
	case dialect.SQLite:
		return &locks.InvalidError{Field: "dialect", Reason: "must be PostgreSQL: " + onSQLite}
	default:
		return &locks.InvalidError{Field: "dialect", Reason: fmt.Sprintf("must be PostgreSQL, got %v", name)}
	}
}
