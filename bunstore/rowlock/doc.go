// Package rowlock locks rows of the host's own bun models inside the host's own transaction: PostgreSQL's SELECT … FOR
// UPDATE and its weaker kin, waiting up to a limit, not at all (NOWAIT), or passing over what is locked (SKIP LOCKED).
//
//	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
//		account := Account{ID: 7}
//		if err := rowlock.Lock(ctx, tx, &account); err != nil { // waits up to 5 s, and reads the row
//			return err
//		}
//		account.Balance -= 100
//		_, err := tx.NewUpdate().Model(&account).WherePK().Exec(ctx)
//		return err
//	})
//
// # What it promises
//
// The lock is the database's own. It is held until the transaction ends, or until a savepoint from before it is rolled
// back, and it ends with the connection. No refusal spoils the transaction: each call runs in a savepoint of its own,
// so that a row that is held, a limit that passed or a faulty condition leaves the transaction as it was, lock_timeout
// and statement_timeout included. Everything runs on the transaction's connection, never on a replica, in three round
// trips (four where [SkipLocked] finds no row by its key). A query hook of the [bun.DB] sees the query, not what makes
// and ends the savepoint; when a hook panics that is undone too. In the session one parameter of our own stays known,
// and empty: rowlease.timeouts.
//
// # What it does not
//
// A row lock keeps out who locks or writes the row, not who reads it. It does not outlive the transaction and knows no
// owner: work that takes longer than a transaction should needs a lease. A row that is not there cannot be locked: two
// transactions can both find none, and both insert it.
//
// A condition without an index has the database read the whole table to find the rows to lock; under SERIALIZABLE that
// also conflicts with every write to the table. [CheckPlan] tells so in a test. Two transactions that lock the same
// rows in different orders deadlock: lock in one order. Each call is a subtransaction, and PostgreSQL slows down
// when a transaction has more than 64 of them: lock many rows by one [LockRows].
//
// # Errors
//
//   - [*HeldError], which is [locks.ErrHeld]: another transaction has the row. The transaction is usable.
//   - [sql.ErrNoRows]: no row has that key. The transaction is usable.
//   - [locks.ErrBusy]: the call as a whole took longer than it may, see [WithLimit]. The transaction is usable.
//   - [locks.ErrSerialization]: a deadlock was broken at this transaction's cost or, under REPEATABLE READ and
//     SERIALIZABLE, the row was changed after the transaction's snapshot. Roll back, which frees the locks that others
//     wait for, and run the transaction again. PostgreSQL looks for a deadlock after deadlock_timeout, 1 s by default;
//     a shorter limit ends it before that, as held.
//   - [*locks.InvalidError], which is [locks.ErrInvalid]: no transaction (a [*bun.DB], nil, one that is over, or that
//     an earlier error aborted), a model that is no pointer, has no primary key or does not have it set, an option out
//     of its bounds, and every call on a dialect without row locks. Nothing was changed.
//   - [context.Canceled] and [context.DeadlineExceeded]: the context ended. When it does during a wait, drivers close
//     the connection and the transaction is lost: keep the limit below the context's deadline. pgdriver sees a
//     deadline, but a cancellation only when the server has answered.
//
// After any other error of the database the transaction is usable too, unless the connection is lost.
//
// PostgreSQL documentation: 13.3.2 "Row-Level Locks" says which strength keeps out which, SELECT's "The Locking
// Clause" what NOWAIT and SKIP LOCKED mean. The functions are safe for concurrent use; a transaction is not.
package rowlock
