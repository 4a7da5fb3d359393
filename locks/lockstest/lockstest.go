// Package lockstest is the promises of package locks as a test suite: what any [locks.Store] must do, run against a
// real one.
//
//	func TestStore(t *testing.T) {
//		lockstest.Run(t, lockstest.Harness{Open: open, Expire: expire})
//	}
//
// It tests what a store answers and leaves behind, in a caller's transaction too where the harness can open one. It does
// not test what needs the engine's own means: a crash, an isolation level, a statement that aborts a transaction, a
// schema that is migrated; nor that the store's clock is the database's. Nor does it test what [locks.Locker] adds, renewal
// and contexts that end, but for its waiting in the store's queue.
//
// Three tests wait for the end of leases of 100 ms: that time alone ends a lease, in a transaction too, and that what a
// transaction has is nobody else's past that end. All others end leases through [Harness.Expire]. A waiter is to be told
// within 30 s of its turn, or of the end of its ticket: who polls each second will do.
//
// The last part runs random calls and compares each answer with a small model. Its seed is printed when it fails;
// LOCKSTEST_SEED in the environment repeats that run.
package lockstest

import (
	"testing"

	"github.com/rowlease/rowlease/locks"
)

// Harness opens the stores to test and has the back doors that spare the tests waiting. Its functions fail the test
// themselves when they cannot do what they are asked.
type Harness struct {
	// Open returns n stores over one database (a table, a schema, a file: whatever keeps others' leases apart) that is
	// new and empty, each with connections of its own, so that they meet in the database only. It registers what
	// closes them with tb.Cleanup. Each test opens one database. Needed.
	Open func(tb testing.TB, n int) []locks.Store

	// Expire makes the lease of a resource end now, by the store's clock, and leaves its row. It does nothing where
	// there is no row. Needed.
	Expire func(tb testing.TB, store locks.Store, resource string)

	// DeleteRow deletes the row of a resource by hand. It does nothing where there is no row. Without it the tests of
	// rows deleted by hand are skipped.
	DeleteRow func(tb testing.TB, store locks.Store, resource string)

	// Truncate empties the table by hand and restarts what restarts with it, such as identities. Without it the test
	// of a table that is emptied is skipped.
	Truncate func(tb testing.TB, store locks.Store)

	// Rows counts the rows, those of ended leases included. Without it no test can say whether a row was left behind
	// or created.
	Rows func(tb testing.TB, store locks.Store) int

	// ExpireTicket makes the ticket of one who waits ([locks.Waiter.Number]) end now, by the store's clock. Without it the
	// tests of waiters that died are skipped.
	ExpireTicket func(tb testing.TB, store locks.Store, number int64)

	// ExpireShare ends the owner's share of a resource now, by the store's clock, and the group with it where no other live
	// share is left, as time would. It does nothing where there is none. Without it the tests of shares that end are skipped.
	ExpireShare func(tb testing.TB, store locks.Store, resource, owner string)

	// Begin opens a transaction of the store's engine, as a caller of the store would, of any isolation level, on a
	// connection of the store that leaves others for its other calls. With tb.Cleanup it registers what rolls back a
	// transaction that is still open. Without it the promises of transactions are skipped.
	Begin func(tb testing.TB, store locks.Store) Transaction

	// OneWriter tells that the engine has one writer, as SQLite has: while a transaction has written or guards, all
	// writes of others wait for a limit and are then refused as [locks.ErrBusy], where other engines answer "held" or
	// "guarded", or do as they are asked.
	OneWriter bool

	// Parallel lets the tests run at the same time, each on its own database.
	Parallel bool
}

// Run tests every promise, each as a subtest named "<subject>/<promise>". A store that is not a [locks.Lister],
// [locks.Purger], [locks.ForceReleaser], [locks.MultiAcquirer], [locks.Transactor], [locks.Queuer] or [locks.Sharer] skips the
// promises of that ability, and says so.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil || h.Expire == nil {
		t.Fatal("lockstest: the harness needs Open and Expire")
	}
	for _, s := range suite() {
		t.Run(s.name, func(t *testing.T) {
			for _, p := range s.promises {
				t.Run(p.name, func(t *testing.T) {
					if h.Parallel {
						t.Parallel()
					}
					p.test(newCheck(t, h, p.stores))
				})
			}
		})
	}
}

// subject is a group of promises, one file each.
type subject struct {
	name     string
	promises []promise
}

// promise is one test. It gets two stores over one database where stores is 0.
type promise struct {
	name   string
	stores int
	test   func(*check)
}

func suite() []subject {
	return []subject{
		{"Grant", grantPromises()},
		{"Refuse", refusePromises()},
		{"Takeover", takeoverPromises()},
		{"Attempt", attemptPromises()},
		{"Renew", renewPromises()},
		{"Release", releasePromises()},
		{"Late", latePromises()},
		{"Tokens", tokenPromises()},
		{"Names", namePromises()},
		{"Invalid", invalidPromises()},
		{"List", listPromises()},
		{"Purge", purgePromises()},
		{"Force", forcePromises()},
		{"All", allPromises()},
		{"InTx", inTxPromises()},
		{"Tx", txPromises()},
		{"TxAcquire", txAcquirePromises()},
		{"TxRenew", txRenewPromises()},
		{"TxRelease", txReleasePromises()},
		{"Guard", guardPromises()},
		{"Queue", queuePromises()},
		{"QueueRule", rulePromises()},
		{"QueueTurn", turnPromises()},
		{"QueueCrowd", crowdPromises()},
		{"Waiting", waitingPromises()},
		{"Share", sharePromises()},
		{"ShareEnd", shareEndPromises()},
		{"ShareSeen", shareSeenPromises()},
		{"ShareCount", shareCountPromises()},
		{"ShareGuard", shareGuardPromises()},
		{"ShareQueue", shareQueuePromises()},
		{"ShareContention", shareContentionPromises()},
		{"Context", contextPromises()},
		{"Contention", contentionPromises()},
		{"Random", randomPromises()},
	}
}
