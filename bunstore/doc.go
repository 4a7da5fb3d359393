// Package bunstore keeps leases in a table of the application's own database, PostgreSQL (12 and later) or SQLite (3.35
// and later), through the bun ORM.
//
//	err := bunstore.Migrate(ctx, db)     // or RegisterMigrations, into the host's own set
//	store, err := bunstore.New(db)
//	report, err := store.Check(ctx)      // once at start
//	locker, err := locks.New(store)
//
// # What it promises
//
// Each change of a lease is one statement that decides by the database's clock and draws its token from a sequence that
// outlives rows, tables and crashes. On PostgreSQL a try never waits for another transaction, contention is never an
// error in the server's log, and statements run under READ COMMITTED whatever the session's default is; an acquire and
// a renewal are on disk when they return, also where synchronous_commit is off, a release need not be.
//
// On SQLite a try on a held resource is a read, which waits for nobody in WAL mode; what changes something waits for the
// file's writer, up to [WithBusyLimit]. SQLite's clock has milliseconds and is that of its process: several machines
// must not share a file.
//
// # In the host's transactions
//
// [Store.RunInTx] runs a function in a transaction, and [Store.Tx] takes one of the host's: leases are acquired, renewed,
// released and guarded in it ([locks.Lease.GuardTx]), so that what it writes is written by the holder or not at all.
//
// # Other locks
//
// Packages next to this one have the database's other locks, in the same manners: rowlock (rows of the host's tables),
// advisory (PostgreSQL's advisory locks), optimistic (a version column), fence (tokens beside data elsewhere).
//
// # What it asks of the host
//
// A [bun.DB] with bun's own pgdialect or sqlitedialect, in the same version as bun, and a driver: pgx (stdlib, every
// exec mode), pgdriver, modernc.org/sqlite or mattn/go-sqlite3. Behind a pooler in transaction mode pgx needs
// default_query_exec_mode cache_describe, exec or simple_protocol. On SQLite use WAL, and a busy_timeout below the
// deadlines of your acquires: a statement that waits for the file's writer is not interrupted.
//
// Statements go to the [sql.DB] with placeholders, so that drivers prepare them once. A query hook of the bun.DB does not
// see them; [WithQueryHook] is the store's own. They never go to a replica.
//
// The table is [Row]; what belongs to it is named after it. Leases are changed through the store only.
package bunstore
