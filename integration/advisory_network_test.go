package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

// What the network does to a session neither hangs its holder nor leaves a lock behind; the pool that the connection
// came from has one, so that a lock on it would be met at once.
func TestAdvisorySessionOnABadNetwork(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		others := advisoryLocker(t, open(t, driver, dsn))
		p, proxied := through(t, dsn)
		limit := advisory.WithCallLimit(300 * time.Millisecond)
		db, pinging := onePool(t, driver, proxied, advisory.WithPingInterval(advisory.MinPingInterval), limit)
		quiet := advisoryLocker(t, db, advisory.WithoutPoolerCheck(), advisory.WithPingInterval(time.Hour), limit)
		recovered := func(t *testing.T, name string) {
			t.Helper()
			eventually(t, "the lock is free", canLock(t, others, name))
			lockEventually(t, quiet, name).Unlock(t.Context())
			eventually(t, "the lock is free again", canLock(t, others, name))
		}
		recovered(t, "a") // connected

		t.Run("black hole", func(t *testing.T) {
			session := lockEventually(t, pinging, "a")
			p.HoldRequests(true)
			p.HoldReplies(true)
			within(t, "the holder is told", session.Context().Done())
			if err := session.Unlock(t.Context()); !errors.Is(err, locks.ErrLost) {
				t.Errorf("Unlock = %v, want ErrLost", err)
			}
			p.HoldRequests(false)
			p.HoldReplies(false)
			recovered(t, "a")
		})

		t.Run("unlock that does not arrive", func(t *testing.T) {
			session := lockEventually(t, quiet, "b")
			p.HoldRequests(true)
			if err := session.Unlock(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Unlock = %v, want its limit", err)
			}
			if canLock(t, others, "b")() {
				t.Error("the server has heard what did not arrive")
			}
			p.Cut()
			p.HoldRequests(false)
			recovered(t, "b")
		})

		t.Run("grant that does not arrive", func(t *testing.T) {
			p.HoldReplies(true)
			if _, err := quiet.TryLock(t.Context(), "c"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
				t.Errorf("TryLock = %v, want its limit", err)
			}
			p.HoldReplies(false)
			recovered(t, "c")
		})
	})
}
