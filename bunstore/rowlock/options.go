package rowlock

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// DefaultLimit is how long a call waits for a lock unless [WithLimit] says otherwise.
const DefaultLimit = 5 * time.Second

const maxLimit = 24 * time.Hour

// The words of SQL for a row that is locked.
const (
	noWait     = "NOWAIT"
	skipLocked = "SKIP LOCKED"
)

// Option says how to lock. An option out of its bounds, or one that contradicts another, is the call's error.
type Option interface{ applyLock(*config) error }

type config struct {
	strength string // of the locking clause
	policy   string // for a row that is locked: "" waits
	limit    time.Duration
}

type option func(*config) error

func (o option) applyLock(c *config) error { return o(c) }

// ForUpdate is the strongest lock, and the default since it is the safe one: nobody else locks, changes or deletes the row, or
// inserts a row that refers to it by a foreign key.
func ForUpdate() Option { return strength("UPDATE") }

// ForNoKeyUpdate is what an UPDATE takes that leaves the keys alone: nobody else changes the row, but rows that refer to
// it may be inserted meanwhile. Prefer it to [ForUpdate] where many transactions insert such rows and the row is not
// going to be deleted.
func ForNoKeyUpdate() Option { return strength("NO KEY UPDATE") }

// ForShare lets others lock the row with ForShare and [ForKeyShare] too, and nobody change it. A transaction that goes on
// to change a row that it has locked so may deadlock with another that does the same.
func ForShare() Option { return strength("SHARE") }

// ForKeyShare is the weakest lock, that of a foreign key's check: nobody deletes the row or changes its key, everything
// else may change.
func ForKeyShare() Option { return strength("KEY SHARE") }

func strength(s string) Option {
	return option(func(c *config) error {
		if c.strength != "" && c.strength != s {
			return &locks.InvalidError{Field: "strength", Reason: fmt.Sprintf("must be one, got FOR %s and FOR %s", c.strength, s)}
		}
		c.strength = s
		return nil
	})
}

// NoWait answers [*HeldError] at once where a row is locked. It still waits, up to the limit, for a lock on the whole
// table, as ALTER TABLE takes it. The server logs each such answer as an error.
func NoWait() Option { return policy(noWait) }

// SkipLocked passes over rows that are locked, so that many workers take different rows of a queue; it still waits, up
// to the limit, for a lock on the whole table. What it reads is not a consistent view of the table. [Lock], which has one row to skip,
// then looks without locking whether the row is there, and answers [*HeldError] if it is: [NoWait] without an error in the
// server's log. That look is later than the first, so that a row freed in between is told as held.
func SkipLocked() Option { return policy(skipLocked) }

func policy(p string) Option {
	return option(func(c *config) error {
		if c.policy != "" && c.policy != p {
			return &locks.InvalidError{Field: "policy", Reason: "must be one, got NOWAIT and SKIP LOCKED"}
		}
		c.policy = p
		return nil
	})
}

// WithLimit bounds how long the call waits for a lock, 5 s by default, from 1 ms to 24 h, rounded up to whole
// milliseconds. It is PostgreSQL's lock_timeout, for this call in place of the session's: it bounds each wait. A call
// that has to wait for several transactions, one after the other, may take longer, at most 2 s more in all; then, as for a query that is
// that slow, it is [locks.ErrBusy]. A shorter statement_timeout of the session still holds and is the server's error
// 57014. Under pgdriver a limit must stay below its ReadTimeout, 10 s by default.
func WithLimit(limit time.Duration) Option {
	return option(func(c *config) error {
		if limit < time.Millisecond || limit > maxLimit {
			return &locks.InvalidError{Field: "limit", Reason: fmt.Sprintf("must be from 1ms to %v, got %v", maxLimit, limit)}
		}
		c.limit = limit
		return nil
	})
}

func newConfig(options []Option) (config, error) {
	c := config{limit: DefaultLimit}
	for _, o := range options {
		if o == nil {
			return config{}, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := o.applyLock(&c); err != nil {
			return config{}, err
		}
	}
	if c.strength == "" {
		c.strength = "UPDATE"
	}
	return c, nil
}

// clause names the table, so that the rows of a joined one are not locked too.
func (c config) clause() string {
	clause := c.strength + " OF ?TableAlias"
	if c.policy != "" {
		clause += " " + c.policy
	}
	return clause
}
