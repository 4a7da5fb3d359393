// Package advisory takes PostgreSQL's advisory locks by name: for a transaction, or for a session that has a
// connection of its own. Both can be exclusive or shared (PostgreSQL documentation, 13.3.5).
//
//	err := advisory.LockTx(ctx, tx, "account:4711")            // until the transaction ends
//
//	locker, err := advisory.New(db)
//	session, err := locker.TryLock(ctx, "nightly report")      // until Unlock
//	defer session.Unlock(ctx)
//	work(session.Context())                                    // ends when the connection is lost
//
// # What they promise
//
// While one holds a name exclusively nobody else who uses this package on the same database holds it, exclusively or
// shared. PostgreSQL frees the lock when the transaction or the session ends, however it ends: there is no time limit
// and nothing to renew, and a process that is killed frees its locks as soon as the server sees its connection close.
//
// # What they do not
//
// They have no fencing token, and no guard. Of a client that has vanished without a word (a machine that lost its
// power, a network that swallows) the server learns by TCP keepalive only: until then, by default two hours and more,
// the lock stays. A session that was lost is told within [WithPingInterval] and [WithCallLimit]; meanwhile the server
// may have given the lock to somebody else. Where that matters take a lease of package locks, whose time limit the
// holder knows.
//
// Locks belong to one database of one server. A replica has its own, and a failover forgets them all. They are held in
// the server's shared memory: with its defaults some thousands at once fill it (max_locks_per_transaction ×
// max_connections), and every other lock in the database fails then too.
//
// A session lock does not work through a pooler in transaction mode: a [Locker] looks for one, and refuses with
// [ErrPooler]. Locks of a transaction do.
//
// SQLite has no advisory locks: everything here refuses it. Use a lease.
package advisory
