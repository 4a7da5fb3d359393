package bunstore

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// Defaults of a [Store].
const (
	// DefaultCallLimit bounds every call to the database.
	DefaultCallLimit = 5 * time.Second
	// DefaultBusyLimit bounds how long a change waits for the writer of an SQLite file. It is well below the limits of a
	// call, here and in package locks, so that a busy file is told as such and not as a call without an answer.
	DefaultBusyLimit = 2 * time.Second
	// DefaultGuardLimit bounds how long a call waits for an open transaction that guards a lease or changes it.
	DefaultGuardLimit = time.Second
)

// Option configures a [Store]. [New] returns the first bad one's error.
type Option interface{ applyStore(*config) error }

// config is what a store was built with.
type config struct {
	table     table
	callLimit time.Duration
	busyLimit time.Duration

	guardLimit time.Duration
	hooks      []bun.QueryHook
	queue      waitqueue.Config
}

type storeOption func(*config) error

func (o storeOption) applyStore(c *config) error { return o(c) }

func (o tableOption) applyStore(c *config) error { return o(&c.table) }

// WithCallLimit bounds every call to the database, 5 s by default, whatever the caller's context allows. Every call has
// such a deadline, since some drivers only stop at a deadline and not at a cancellation. On SQLite a statement that has
// begun runs to its end, see [WithBusyLimit].
func WithCallLimit(limit time.Duration) Option {
	return storeOption(func(c *config) error {
		c.callLimit = limit
		return positive("call limit", limit)
	})
}

// WithBusyLimit bounds how long a change waits while somebody else writes to the SQLite file, 2 s by default; then
// it returns [locks.ErrBusy]. SQLite's own busy_timeout, which the host sets on its connections, is waited for to its end,
// beyond this limit and beyond any context: keep it short, a second at most. A locker does not wait for it longer than
// its caller's context. The option has no meaning on PostgreSQL.
func WithBusyLimit(limit time.Duration) Option {
	return storeOption(func(c *config) error {
		c.busyLimit = limit
		return positive("busy limit", limit)
	})
}

// WithGuardLimit bounds how long a release waits while another transaction guards the lease, and a renewal or a guard
// while another transaction changes it, 1 s by default; then they return [locks.ErrGuarded] and [locks.ErrBusy]. It
// must be shorter than the call limit to have an effect. An acquire never waits. On SQLite it is the busy limit that counts.
func WithGuardLimit(limit time.Duration) Option {
	return storeOption(func(c *config) error {
		c.guardLimit = limit
		return positive("guard limit", limit)
	})
}

// WithQueryHook shows the store's statements to a bun query hook, for logs, traces and metrics. The store does not run
// its statements through bun's formatter, so that the driver can prepare them once; a hook of the [bun.DB] itself
// therefore does not see them. The event's Query and QueryTemplate have placeholders, QueryArgs the values; Model and
// IQuery are nil. BEGIN and COMMIT are not shown.
func WithQueryHook(hook bun.QueryHook) Option {
	return storeOption(func(c *config) error {
		if hook == nil {
			return &locks.InvalidError{Field: "query hook", Reason: "must not be nil"}
		}
		c.hooks = append(c.hooks, hook)
		return nil
	})
}

// WithWaker hears over a connection of its own whose turn it is, where the store polls otherwise: within a second, and at
// once what this store itself frees. Packages bunstore/pgxwaker and bunstore/pgdriverwaker have one each, for
// PostgreSQL. The connection is there only while somebody waits in this process, and a second longer. While it does not
// hear (it was cut; it goes through a pooler in transaction mode) the store polls, and says so once in the log.
func WithWaker(waker locks.Waker) Option {
	return storeOption(func(c *config) error {
		if waker == nil {
			return &locks.InvalidError{Field: "waker", Reason: "must not be nil"}
		}
		c.queue.Waker = waker
		return nil
	})
}

// WithTicketTTL sets how long the place of a waiter lasts unless its process keeps it, 15 s by default, at least 100 ms.
// For so long a waiter that was killed delays those behind it. The process keeps the places of all its waiters with one
// statement each third of that.
func WithTicketTTL(ttl time.Duration) Option {
	return storeOption(func(c *config) error {
		c.queue.TTL = ttl
		if ttl < locks.MinTTL || ttl > locks.MaxTTL {
			return &locks.InvalidError{Field: "ticket ttl", Reason: fmt.Sprintf("must be from %v to %v, got %v", locks.MinTTL, locks.MaxTTL, ttl)}
		}
		return nil
	})
}

// WithPoll bounds the pause between two looks at the queue while nothing is heard, 50 ms and 1 s by default: it grows from
// least to most. One statement looks for all waiters of the process.
func WithPoll(least, most time.Duration) Option {
	return storeOption(func(c *config) error {
		c.queue.MinPoll, c.queue.MaxPoll = least, most
		if most < least {
			return &locks.InvalidError{Field: "poll", Reason: fmt.Sprintf("must not be longer at least (%v) than at most (%v)", least, most)}
		}
		if least < time.Millisecond {
			return &locks.InvalidError{Field: "poll", Reason: fmt.Sprintf("must be at least %v, got %v", time.Millisecond, least)}
		}
		return nil
	})
}

// WithLogger tells the logger when the waker of [WithWaker] hears nothing, and when it does again.
func WithLogger(logger *slog.Logger) Option {
	return storeOption(func(c *config) error {
		if logger == nil {
			return &locks.InvalidError{Field: "logger", Reason: "must not be nil"}
		}
		c.queue.Logger = logger
		return nil
	})
}

func positive(field string, d time.Duration) error {
	if d <= 0 {
		return &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must be positive, got %v", d)}
	}
	return nil
}
