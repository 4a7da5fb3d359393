package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/bounded"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// Session holds one lock, on a connection of its own, until [Session.Unlock]: a session that is never unlocked keeps
// lock, connection and goroutine. It is safe for concurrent use.
type Session struct {
	request   request
	callLimit time.Duration
	conn      *connection // the watch's, and Unlock's when that has ended

	ctx    context.Context //nolint:containedctx // it is what the session is asked for
	cancel context.CancelCauseFunc

	stop    chan struct{} // ends the watch
	watched chan struct{} // closed when it has ended
	lost    error         // what the watch found; read after watched

	once     sync.Once
	unlocked error
}

func newSession(ctx context.Context, r request, c *connection, interval, callLimit time.Duration) *Session {
	s := &Session{request: r, callLimit: callLimit, conn: c, stop: make(chan struct{}), watched: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.watch(interval)
	return s
}

// Name returns what is locked.
func (s *Session) Name() string { return s.request.name }

// Shared reports whether the lock is shared.
func (s *Session) Shared() bool { return s.request.shared }

// Context returns a context for the work under the lock, with the values of the one that it was taken with. It ends
// with [Session.Unlock], its cause is then [locks.ErrReleased]; or when the connection is lost, its cause is then a
// [*LostError]. A loss is noticed by a ping that fails or has no answer: within [WithPingInterval] and
// [WithCallLimit]. The server may by then have given the lock to somebody else.
func (s *Session) Context() context.Context { return s.ctx }

// Unlock ends the session's context, frees the lock and gives the connection back to the pool. Where it is not certain
// that the lock is free the connection is closed instead, so that PostgreSQL frees it, in the background where the
// driver hangs. The result of the first call is that of every later one; later calls wait for it. It takes the
// context's values, not its end: a caller that was cancelled is just the one whose lock must be freed. It is bounded
// by [WithCallLimit] instead, twice that when a ping is under way.
//
// Errors: [*LostError] when the connection was lost, before or now, or the server did not know of the lock; otherwise
// the database's, or the deadline of that limit: the connection is then closed.
func (s *Session) Unlock(ctx context.Context) error {
	s.once.Do(func() {
		s.cancel(locks.ErrReleased)
		close(s.stop)
		<-s.watched
		if s.unlocked = s.lost; s.lost == nil {
			s.unlocked = s.free(ctx)
		}
	})
	return s.unlocked
}

func (s *Session) free(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.callLimit)
	defer cancel()
	freed, err := bounded.Do(ctx, func() (bool, error) {
		return s.conn.unlock(ctx, s.request.form(unlockStatement), s.request.key)
	}, func(bool) {}) // it has cleaned up itself
	switch {
	case connectionLost(ctx, err):
		return s.lostBy(err)
	case err != nil:
		return dberror.Wrap(ctx, fmt.Sprintf("advisory: unlock %q", s.request.name), err)
	case !freed:
		return s.lostBy(errors.New("the server knows nothing of it"))
	}
	return nil
}

// watch looks after the connection, in turn with nobody: Unlock waits for its end.
func (s *Session) watch(interval time.Duration) {
	defer close(s.watched)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		if err := s.ping(); err != nil {
			s.lost = s.lostBy(err)
			s.cancel(s.lost)
			return
		}
	}
}

func (s *Session) ping() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.callLimit)
	defer cancel()
	_, err := bounded.Do(ctx, func() (*connection, error) { return s.conn, s.conn.ping(ctx) }, (*connection).discard)
	return dberror.Wrap(ctx, "ping", err)
}

// connectionLost reports whether the error, other than by the context's end, is that of the connection or of a server
// that has ended it: then PostgreSQL has freed the lock, nobody knows since when.
func connectionLost(ctx context.Context, err error) bool {
	if err == nil || dberror.ContextEnd(ctx) != nil {
		return false
	}
	state := dberror.SQLState(err)
	return state == "" || strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
}

func (s *Session) lostBy(cause error) error { return &LostError{Name: s.request.name, Cause: cause} }
