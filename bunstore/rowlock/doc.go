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
// The lock is the database's own. It is held until the transaction ends, or until a savepoint taken before it is rolled
// back, and it ends with the connection. No refusal spoils the transaction: each call runs in a savepoint of its own, and
// a row that is held, a limit that passed or a faulty statement leaves the transaction as it was, its lock_timeout and
// statement_timeout included. It runs on the transaction's connection, never on a replica, in three round trips (four
// where [SkipLocked] finds one row skipped or gone); a query hook of the bun.DB sees them.
//
// # What it does not
//
// A row lock excludes who locks or writes the row, and nobody who only reads it. It does not outlive the transaction and
// knows no owner: for work that takes longer than a transaction should, take a lease. A row that is not there cannot be
// locked: two transactions can both find none and both insert.
//
// A condition without an index has the database read the whole table to find the rows that it locks; under SERIALIZABLE
// that read conflicts with every write to the table. [CheckPlan] tells in a test. Two transactions that lock the same rows in different orders
// deadlock: lock them in one order, as by "ORDER BY id" in the condition. Each call is a subtransaction, and PostgreSQL slows down
// when a transaction has more than 64: lock many rows by one [LockRows].
//
// # Errors
//
//   - [*HeldError], which is [locks.ErrHeld]: another transaction has the row. The transaction is usable.
//   - [sql.ErrNoRows]: no row has that key. The transaction is usable.
//   - [locks.ErrBusy]: the call as a whole took longer than it may, see [WithLimit]. The transaction is usable.
//   - [locks.ErrSerialization]: a deadlock was broken at this transaction's cost, or (under REPEATABLE READ and
//     SERIALIZABLE) the row was changed after the transaction's snapshot. Roll the transaction back, which frees the locks
//     that others wait for, and run it again from its beginning. The database breaks a deadlock after its deadlock_timeout, 1 s by default;
//     a shorter limit ends it before that, as held.
//   - [*locks.InvalidError], which is [locks.ErrInvalid]: no transaction (a [*bun.DB], nil, one that is over or was
//     aborted by an earlier error), a model that is no pointer or has no primary key, an option out of its bounds, and
//     every call on a dialect without row locks. Nothing was changed.
//   - [context.Canceled] and [context.DeadlineExceeded]: the context ended. If it did so during the wait, drivers close
//     the connection and the transaction is lost with it: keep the limit below the context's deadline. pgdriver does not notice a cancellation
//     while it reads, only a deadline.
//
// PostgreSQL documentation: 13.3.2 "Row-Level Locks" says which strength excludes which, and "The Locking Clause" of
// SELECT what NOWAIT and SKIP LOCKED mean. All functions are safe for concurrent use, a transaction is not.
package rowlock
