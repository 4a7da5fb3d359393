package bunstore

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"
)

// Row is the bun model of the lease table, for queries of the host: a report, a join, a check in a test. The store does
// not use it, and rows are changed through the store only: a row that is written by hand has no gate and no token of
// the sequence. With [WithTable] or [WithSchema], name the table in the query: ModelTableExpr("app.leases AS lease").
//
// A row is there until its lease is released or purged: compare ExpiresAt with the database's clock to know whether it
// is live.
type Row struct {
	bun.BaseModel `bun:"table:distributed_locks,alias:lease"`

	ID         int64           `bun:"id,pk,autoincrement"`
	Resource   string          `bun:"resource,notnull,unique"`
	Owner      string          `bun:"owner,notnull"` // "" for a group of those who share it
	Token      int64           `bun:"token,notnull,unique"`
	Attempt    string          `bun:"attempt,notnull"`
	AcquiredAt Instant         `bun:"acquired_at,notnull"`
	ExpiresAt  Instant         `bun:"expires_at,notnull"`
	Metadata   json.RawMessage `bun:"metadata,type:text"`
}

// Instant is a time as the lease table keeps it: a timestamptz on PostgreSQL, microseconds since the epoch on SQLite.
// As an argument of a bun query it is written in the form that its dialect compares rightly.
type Instant struct{ time.Time }

var (
	_ schema.QueryAppender = Instant{}
	_ driver.Valuer        = Instant{}
)

// Scan implements [database/sql.Scanner]. The time is in UTC.
func (i *Instant) Scan(src any) error {
	switch src := src.(type) {
	case time.Time:
		i.Time = src.UTC()
	case int64:
		i.Time = time.UnixMicro(src).UTC()
	default:
		return fmt.Errorf("bunstore: cannot scan %T into an Instant", src)
	}
	return nil
}

// AppendQuery implements bun's schema.QueryAppender.
func (i Instant) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if gen.Dialect().Name() == dialect.SQLite {
		return gen.Append(b, i.UnixMicro()), nil
	}
	return gen.Append(b, i.UTC()), nil
}

// Value implements [driver.Valuer], for arguments that do not pass through bun: the form of PostgreSQL.
func (i Instant) Value() (driver.Value, error) { return i.UTC(), nil }
