// Package fence refuses late writes to the host's own rows by the fencing token of a lease: a row is written only if the
// token is not older than the one stored with it. It works where the lease cannot be checked inside the transaction that
// writes, because the row is in another database than the leases.
//
//	err := fence.Update(ctx, db, &report, lease.Token())     // writes the struct and the token
//	if errors.Is(err, fence.ErrStale) { … }                  // somebody with a newer grant was here
//
// The token is [locks.Lease.Token], which grows with each grant of a resource. The row has a column for it, named
// fence_token unless [WithTokenColumn] says otherwise: a bigint (in SQLite an INTEGER), NULL or 0 while no token has
// been stored. The model may have a field for it and need not.
//
// # What it promises
//
// Check and write are one statement on one row. The stored token never goes down, whatever the order in which writes
// arrive; the same token may write again, so that a holder can repeat a write whose answer was lost. Writers that race
// for a row wait for each other in the database, and the later one is checked against what the earlier one stored
// (PostgreSQL documentation, chapter 13.2.1: under READ COMMITTED the WHERE is evaluated again on the updated row; under
// REPEATABLE READ and SERIALIZABLE the later one fails with [locks.ErrSerialization]).
//
// # What it does not
//
// A fence is per row. A token that never reaches a row protects nothing there: until the new holder has written, the old
// one's late write passes. A holder that must shut out its predecessors before it reads what they left calls [Advance]
// first. Every writer of the row has to go through the fence, and all of them under one resource: tokens of two
// resources say nothing about each other. Rows in the same database as the leases are better off with a guard.
//
// Several rows are not all or nothing, so there is no call for them: run one call per row in a transaction, and roll it
// back on the first error.
//
// PostgreSQL and SQLite through bun; [Condition] and [Check] are for everything else.
package fence
