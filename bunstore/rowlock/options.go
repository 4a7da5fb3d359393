package rowlock

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// DefaultLimit is how long a call waits for a lock unless [WithLimit] says otherwise.
const DefaultLimit = 5 * time.Second

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

// ForUpdate is the strongest lock, and the default because it keeps out everything: nobody else locks, changes or
// deletes the row, or inserts one that refers to it by a foreign key.
func ForUpdate() Option { return strength("UPDATE") }

// ForNoKeyUpdate is what an UPDATE takes that leaves the keys alone: nobody else changes the row, while rows that refer
// to it can be inserted. Prefer it to [ForUpdate] where others insert such rows and this one is not to be deleted.
func ForNoKeyUpdate() Option { return strength("NO KEY UPDATE") }

// ForShare lets others lock the row with ForShare and [ForKeyShare] too, and nobody change it. Two transactions that
// both go on to change a row that they have locked so deadlock.
func ForShare() Option { return strength("SHARE") }

// ForKeyShare is the weakest lock, that of a foreign key's check: nobody deletes the row or changes its key, everything
// else may change.
func ForKeyShare() Option { return strength("KEY SHARE") }

func strength(s string) Option {
	return option(func(c *config) error {
		if c.strength != "" && c.strength != s {
			reason := fmt.Sprintf("must be one, got FOR %s and FOR %s", c.strength, s)
			return &locks.InvalidError{Field: "strength", Reason: reason}
		}
		c.strength = s
		return nil
	})
}

// NoWait answers [*HeldError] at once where a row is locked. It still waits, up to the limit, for a lock on the whole
// table, as ALTER TABLE takes it. The server logs each such answer as an error.
func NoWait() Option { return policy(noWait) }

// SkipLocked passes over rows that are locked, so that many workers take different rows of a queue: what it reads is no
// consistent view of the table. It too waits, up to the limit, for a lock on the whole table. [Lock], which has one row
// to pass over, then looks without locking whether there is such a row, and answers [*HeldError] if so: [NoWait]
// without an error in the server's log. The look is the later of the two: a row freed in between is told as held.
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

// WithLimit bounds how long the call waits for a lock, 5 s by default, from 1 ms to 24 h, rounded up to milliseconds.
// It is PostgreSQL's lock_timeout, for this call in place of the session's, and so bounds each wait: a call that has to
// wait for several transactions, one after the other, may take longer. It may take 2 s longer altogether; then it is
// [locks.ErrBusy], as is a query that needs that long without any wait.
//
// A session's statement_timeout that is shorter still holds, and is the server's error 57014. pgdriver gives up the
// connection after its own ReadTimeout, 10 s by default: a longer limit needs a longer one.
func WithLimit(limit time.Duration) Option {
	return option(func(c *config) error {
		c.limit = limit
		return transaction.CheckLimit("limit", limit, time.Millisecond)
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
