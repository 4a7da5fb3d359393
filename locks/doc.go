// Package locks holds leases on named resources in a store that the application already has.
//
// A lease is a time-bound grant of a resource to one owner. Each grant carries a fencing token, a number that
// grows with every grant of that resource and never comes again, whatever happens to the row in between.
//
//	locker, err := locks.New(store)
//	err = locker.Do(ctx, "report:2026-05", func(ctx context.Context, lease *locks.Lease) error {
//		return writeReport(ctx, lease.Token())
//	})
//
// # What a lease promises
//
//   - At any instant of the store's clock at most one unexpired grant of a resource exists, or, where it is shared ([Sharer]),
//     those of one group. The application's clock never decides who holds: it can only end a holder's trust early.
//   - The holder knows in time: the lease's context ends, with a cause, before the lease can end by time in the
//     store, even if every call to the store hangs. Until then a failed renewal is tried again; only the store's own
//     word that the grant is gone ends the context earlier.
//   - An answer that got lost leaks nothing: a retry of the same acquire finds its own grant again, and giving up
//     frees in the background whatever that acquire may have been granted.
//   - A late call harms nobody: renew and release name the grant (resource, owner, token), never just the resource.
//
// # What it does not promise
//
// A process that is paused (SIGSTOP, a starved container) cannot be told while it sleeps: it learns when it runs again.
// On a machine that was suspended the monotonic clock may have stood still (Linux), and then the holder learns at its
// next renewal. What it writes until then is kept out only by a check at the place where it writes, that is the fencing
// token. A grant that was ended early by somebody else (a forced release, a
// new grant of the same owner) is noticed at the next renewal, at most one interval later.
//
// Where the data is in the same database, [Lease.GuardTx] is that check, in the transaction that writes.
//
// # Where things are
//
// [Locker] acquires, [Lease] is what it hands out, [LeaseSet] is several of one acquire. [Store] is what an engine must do,
// [Tx] what it does in a caller's transaction, [Queuer] and [Sharer] what it can do besides, [Janitor] purges expired rows.
// Package election has one leader among replicas, waitqueue is for those who write a store with a queue.
// The promises are a test suite in package lockstest that any store can run; memstore is a store in memory.
package locks
