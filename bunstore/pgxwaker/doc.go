// Package pgxwaker hears PostgreSQL's notifications through pgx, so that a store knows at once when it is a waiter's
// turn. It is a module of its own: who does not use it does not get pgx.
//
//	waker, err := pgxwaker.New(os.Getenv("DATABASE_URL"))
//	…
//	store, err := bunstore.New(db, bunstore.WithWaker(waker))
//
// # The connection
//
// A [Waker] dials by itself and never takes a connection out of the host's pool. A store has one connection through it
// while somebody waits in the process, however many wait, and none otherwise; count it where the server's
// connections are counted. It is called "rowlease waker" in pg_stat_activity unless the configuration has an
// application_name. A server on which nobody listens does nothing for it, and one on which N processes listen wakes
// those N once for each notification of the database.
//
// It has to reach the database in which the store is, on the primary: a standby refuses LISTEN. An idle_session_timeout
// of the server is switched off for this session, which is idle by nature.
//
// # Poolers
//
// LISTEN belongs to a session, and a pooler in transaction mode (PgBouncer, Supavisor, RDS Proxy and others) gives the
// session to somebody else after each transaction, who would then be sent what is not for them. [Waker.Listen] finds
// that out before it listens, for which it opens a second connection for a moment where it is not connected to the
// server itself, and returns [ErrPooler]: the store polls. It can miss a pooler that is busy at that moment. Better
// give the waker an address that leads past the pooler. Session mode is fine.
package pgxwaker
