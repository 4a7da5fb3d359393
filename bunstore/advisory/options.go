package advisory

import (
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// Defaults and bounds.
const (
	// DefaultLimit bounds a wait for a lock.
	DefaultLimit = 5 * time.Second
	// DefaultPingInterval is how often a session looks whether its connection is still there.
	DefaultPingInterval = 5 * time.Second
	// MinPingInterval is the shortest such interval.
	MinPingInterval = 100 * time.Millisecond
	// DefaultCallLimit bounds every call to the database, beyond the wait itself.
	DefaultCallLimit = 5 * time.Second
)

// Option says how one lock is taken. The call returns the first bad one's error.
type Option func(*request) error

// Shared takes the lock shared: with others who do, not with one who holds it exclusively.
func Shared() Option {
	return func(r *request) error {
		r.shared = true
		return nil
	}
}

// WithLimit bounds the wait of [LockTx] and [Locker.Lock], 5 s by default, from 1 ms to 24 h. A try does not wait and
// refuses the option.
func WithLimit(limit time.Duration) Option {
	return func(r *request) error {
		if err := transaction.CheckLimit("limit", limit, time.Millisecond); err != nil {
			return err
		}
		if r.try {
			return &locks.InvalidError{Field: "limit", Reason: "has no meaning for a try: it does not wait"}
		}
		r.limit = limit
		return nil
	}
}

// request is one call's.
type request struct {
	name   string
	key    int64
	shared bool
	try    bool
	limit  time.Duration
}

func newRequest(name string, try bool, options []Option) (request, error) {
	if err := locks.ValidateResource(name); err != nil {
		return request{}, err
	}
	r := request{name: name, key: KeyOf(name), try: try, limit: DefaultLimit}
	for _, option := range options {
		if option == nil {
			return request{}, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(&r); err != nil {
			return request{}, err
		}
	}
	return r, nil
}

func (r request) what() string {
	if r.try {
		return fmt.Sprintf("advisory: try lock %q", r.name)
	}
	return fmt.Sprintf("advisory: lock %q", r.name)
}

// LockerOption configures a [Locker]. [New] returns the first bad one's error.
type LockerOption func(*Locker) error

// WithPingInterval sets how often a session looks whether its connection is still there, 5 s by default, from
// 100 ms to 24 h. It also keeps the server's idle_session_timeout, where that is longer, from ending the session.
func WithPingInterval(interval time.Duration) LockerOption {
	return func(l *Locker) error {
		l.interval = interval
		return transaction.CheckLimit("ping interval", interval, MinPingInterval)
	}
}

// WithCallLimit bounds every call to the database, 5 s by default, from 1 ms to 24 h: a try, a ping, an unlock; and,
// beyond its limit, a wait.
func WithCallLimit(limit time.Duration) LockerOption {
	return func(l *Locker) error {
		l.callLimit = limit
		return transaction.CheckLimit("call limit", limit, time.Millisecond)
	}
}

// WithoutPoolerCheck takes it on the caller's word that no pooler in transaction mode is in between. A pool of one
// connection needs it, since the look for a pooler takes two.
func WithoutPoolerCheck() LockerOption {
	return func(l *Locker) error {
		l.fit.Store(true)
		return nil
	}
}
