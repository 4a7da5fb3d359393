package advisory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/internal/bounded"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/pooler"
	"github.com/rowlease/rowlease/locks"
)

// Locker takes session locks. It is safe for concurrent use, holds nothing between calls, and closes nothing. Each
// session takes one connection out of the pool for as long as it lasts.
type Locker struct {
	db        *bun.DB
	interval  time.Duration
	callLimit time.Duration

	fit     atomic.Bool   // no pooler in transaction mode was found
	looking chan struct{} // whoever has put in looks; two that have one connection each would wait for each other's
}

// New returns a locker on the database. It asks the database nothing: the first lock looks for a pooler in transaction
// mode, or [Locker.Check] at start does.
//
// Errors: [*locks.InvalidError] for the first bad option, for a nil db, and for a dialect other than PostgreSQL's.
func New(db *bun.DB, options ...LockerOption) (*Locker, error) {
	if db == nil || db.DB == nil {
		return nil, &locks.InvalidError{Field: "db", Reason: "must not be nil"}
	}
	if err := needPostgres(db.Dialect()); err != nil {
		return nil, err
	}
	l := &Locker{db: db, interval: DefaultPingInterval, callLimit: DefaultCallLimit, looking: make(chan struct{}, 1)}
	for _, option := range options {
		if option == nil {
			return nil, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(l); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Check looks, with two connections of the pool at once, whether they go through a pooler in transaction mode. When
// none is found the locker's first lock need not look again. It says nothing of a pool that is pointed elsewhere
// later.
//
// Errors: [ErrPooler]; [*locks.InvalidError] for a pool of one connection, which cannot be looked through; the
// database's, or the context's end, when two connections are not to be had within [WithCallLimit].
func (l *Locker) Check(ctx context.Context) error { return l.look(ctx, true) }

func (l *Locker) look(ctx context.Context, again bool) error {
	if !again && l.fit.Load() {
		return nil
	}
	if l.db.Stats().MaxOpenConnections == 1 {
		return &locks.InvalidError{Field: "db", Reason: "must have two connections, by which a pooler in " +
			"transaction mode is found: raise SetMaxOpenConns, or say WithoutPoolerCheck"}
	}
	ctx, cancel := context.WithTimeout(ctx, l.callLimit)
	defer cancel()
	select {
	case l.looking <- struct{}{}:
		defer func() { <-l.looking }()
	case <-ctx.Done():
		return dberror.Wrap(ctx, "advisory: look for a pooler", ctx.Err())
	}
	if !again && l.fit.Load() {
		return nil
	}
	found, err := bounded.Do(ctx, func() (bool, error) { return l.multiplexed(ctx) }, func(bool) {})
	switch {
	case found:
		return ErrPooler
	case pooler.LostStatement(err):
		return fmt.Errorf("%w (%w)", ErrPooler, err)
	case err != nil:
		return dberror.Wrap(ctx, "advisory: look for a pooler", err)
	}
	l.fit.Store(true)
	return nil
}

func (l *Locker) multiplexed(ctx context.Context) (bool, error) {
	a, err := l.db.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer a.Close() //nolint:errcheck // back into the pool
	b, err := l.db.DB.Conn(ctx)
	if err != nil {
		return false, errors.Join(errors.New("no second connection"), err)
	}
	defer b.Close() //nolint:errcheck // back into the pool
	return pooler.Multiplexed(ctx, a, b)
}

// TryLock takes the lock in a session of its own, or answers at once that it is held. It waits for a free connection
// of the pool, for [WithCallLimit] at most. The context bounds the try, not the lock: its values are kept, its end is
// not.
//
// Errors: [*locks.HeldError] when it is held, in this process too, also when those who wait for it come first;
// [ErrPooler]; [*locks.InvalidError] for a bad name or option, and for a pool of one connection (see
// [WithoutPoolerCheck]); the context's end; otherwise the database's. After any error nothing is held, or will not be
// once the connection, which is closed in the background, is gone.
func (l *Locker) TryLock(ctx context.Context, name string, options ...Option) (*Session, error) {
	return l.lock(ctx, name, true, options)
}

// Lock is [Locker.TryLock] that waits, for [WithLimit] at most (5 s by default); then it answers [*locks.HeldError].
// When the context ends first, its caller is told at once. A wait that nobody waits for any more may go on at the
// server for some seconds, and is undone should it be granted.
//
// Waiters are served in their order, but for one that has waited 4 s: it steps back and asks again, and the server's
// log has a line on it ("canceling statement due to lock timeout"). Under a statement_timeout of less than 8 s that is
// after half of it. Two that wait for each other both do so up to their limits: each waits on another connection than
// it holds, so PostgreSQL sees no deadlock. Where several names are locked, lock them in one order.
func (l *Locker) Lock(ctx context.Context, name string, options ...Option) (*Session, error) {
	return l.lock(ctx, name, false, options)
}

func (l *Locker) lock(ctx context.Context, name string, try bool, options []Option) (*Session, error) {
	until := time.Now()
	r, err := newRequest(name, try, options)
	if err != nil {
		return nil, err
	}
	if err := l.look(ctx, false); err != nil {
		return nil, err
	}
	limit := l.callLimit
	if !try {
		until = until.Add(r.limit)
		limit += r.limit
	}
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := bounded.Do(call, func() (*connection, error) { return l.take(call, r, until) }, func(c *connection) {
		if c != nil {
			c.discard()
		}
	})
	switch {
	case err != nil:
		return nil, dberror.Wrap(call, r.what(), err)
	case c == nil:
		return nil, locks.Held(name, nil)
	}
	return newSession(ctx, r, c, l.interval, l.callLimit), nil
}

// take asks for the lock on a connection out of the pool; nil is "held". What it does not return is back in the pool
// when nothing is held on it for certain, and closed otherwise.
func (l *Locker) take(ctx context.Context, r request, until time.Time) (*connection, error) {
	conn, err := l.db.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{conn: conn}
	var granted bool
	if r.try {
		granted, c.backend, err = ask(ctx, conn, r.form(tryStatement), r.key)
	} else {
		granted, err = wait(ctx, until, l.callLimit, func(ctx context.Context, slice string) (yes bool, err error) {
			yes, c.backend, err = ask(ctx, conn, r.form(waitStatement), r.key, slice)
			return yes, err
		})
	}
	switch {
	case err != nil:
		c.discard()
		return nil, err
	case !granted:
		c.giveBack()
		return nil, nil // held
	}
	return c, nil
}
