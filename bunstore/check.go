package bunstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
)

// Report is what [Store.Check] found out about the database.
type Report struct {
	// Dialect is "PostgreSQL" or "SQLite", Version the server's or the library's own.
	Dialect, Version string
	// Encoding is the database's: "UTF8" on PostgreSQL, "UTF-8" on SQLite, or it is a problem.
	Encoding string
	// Isolation is the connection's default, such as "read committed" (PostgreSQL).
	Isolation string
	// Durability is synchronous_commit (PostgreSQL), or journal_mode and synchronous (SQLite: "wal, normal").
	Durability string
	// ClockSkew is the database's clock minus the application's, exact to half of RoundTrip. Nothing is decided by it.
	ClockSkew, RoundTrip time.Duration
	// TransactionPooler tells that one connection was seen to be served by several backends in turn (PostgreSQL).
	TransactionPooler bool
	// Warnings is what works, but not as well or not as expected; each says what to do.
	Warnings []string
	// NotChecked is what could not be looked at, each with the reason.
	NotChecked []string
}

// CheckError is everything that [Store.Check] found and that must be put right before the database can hold leases.
type CheckError struct {
	// Table is the table's name as it was given.
	Table string
	// Problems says of each what is wrong and what to do; there is at least one.
	Problems []string
}

// Error tells all the problems.
func (e *CheckError) Error() string {
	return fmt.Sprintf("bunstore: table %s cannot hold leases here: %s", e.Table, strings.Join(e.Problems, "; "))
}

// Limits of a check.
const (
	checkLimit      = 10 * time.Second // when the caller gives no deadline
	checkSecondConn = time.Second      // to get a second connection out of the pool
	checkSkew       = 5 * time.Second  // what is worth a warning
)

// check looks whether the database can hold the table's leases as promised, and changes nothing. It ends with ctx, and
// after 10 s when that has no deadline. It needs one connection; what needs a second is left out when the pool has
// none to give.
//
// Errors: [*CheckError] with all that is wrong, besides, or instead, the fault that ended the check early.
func check(ctx context.Context, db *bun.DB, t table) (Report, error) {
	if err := t.validDB(db); err != nil {
		return Report{}, err
	}
	var finished atomic.Pointer[checker] // nil as long as a driver that does not come back may still be at it
	fault := abandonable(ctx, checkLimit, func(ctx context.Context) error {
		c := &checker{db: db, table: t}
		defer finished.Store(c)
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // back into the pool
		if db.Dialect().Name() == dialect.SQLite {
			return c.sqlite(ctx, conn)
		}
		return c.postgres(ctx, conn)
	})
	if fault != nil {
		fault = fmt.Errorf("bunstore: check table %s: %w", t, fault)
	}
	c := finished.Load()
	if c == nil {
		return Report{}, fault
	}
	if len(c.problems) > 0 {
		fault = errors.Join(&CheckError{Table: t.String(), Problems: c.problems}, fault)
	}
	return c.report, fault
}

// checker collects what a check finds.
type checker struct {
	db       *bun.DB
	table    table
	report   Report
	problems []string
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *checker) warn(format string, args ...any) {
	c.report.Warnings = append(c.report.Warnings, fmt.Sprintf(format, args...))
}

func (c *checker) notChecked(format string, args ...any) {
	c.report.NotChecked = append(c.report.NotChecked, fmt.Sprintf(format, args...))
}

func (c *checker) missing(detail string) {
	c.problem("the table is missing%s: run bunstore.Migrate, or add it to your own migrations with "+
		"bunstore.RegisterMigrations and run those", detail)
}

// clock measures the clocks' difference: statement returns the database's in microseconds. The quickest of three round
// trips tells most, and a first one may include a connection's or a statement's preparation.
func (c *checker) clock(ctx context.Context, q rawQuerier, statement string) error {
	for i := range 3 {
		var micros int64
		sent := time.Now()
		if err := rawQuery(ctx, q, statement, nil, &micros); err != nil {
			return err
		}
		trip := time.Since(sent)
		if i == 0 || trip < c.report.RoundTrip {
			c.report.RoundTrip = trip
			c.report.ClockSkew = time.UnixMicro(micros).Sub(sent.Add(trip / 2).Round(0))
		}
	}
	if c.report.ClockSkew.Abs()-c.report.RoundTrip/2 > checkSkew {
		c.warn("the database's clock is %v from the application's: leases go by the database's alone, but times that are "+
			"shown or logged will look wrong; set the clocks", c.report.ClockSkew.Round(time.Millisecond))
	}
	return nil
}

// second returns another connection of the pool while the first is in use, or says why there is none.
func (c *checker) second(ctx context.Context) (bun.Conn, bool) {
	if c.db.Stats().MaxOpenConnections == 1 {
		return bun.Conn{}, false
	}
	waiting, cancel := context.WithTimeout(ctx, checkSecondConn)
	defer cancel()
	conn, err := c.db.Conn(waiting)
	return conn, err == nil
}
