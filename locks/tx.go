package locks

import (
	"context"
	"fmt"
	"time"
)

// Tx is a caller's open transaction as a store sees it: what changes a lease as part of it, and what guards one. What is
// acquired, renewed or released there is so with the commit, and undone by a rollback, that of a savepoint too. A
// store makes it of its own handle on a transaction; package lockstest has its promises.
//
// A Tx is for one goroutine at a time, as a transaction is. None of its methods waits for another transaction but for a
// limit of the store's. Each refuses, with [ErrInvalid] for the transaction, one that is over or was aborted.
//
// "held", "lost" and "guarded" leave the transaction as it was. After [ErrRetryable] only a new transaction helps: its
// snapshot is too old, or the database has aborted it.
type Tx interface {
	// Acquire is [Store.Acquire] as a part of the transaction: nobody else sees the lease before the commit, and nobody
	// else is granted the resource meanwhile. The lease's time runs from now on.
	//
	// What the holder before wrote is seen under READ COMMITTED. In a transaction with a snapshot (REPEATABLE READ,
	// SERIALIZABLE) it is not, if it was committed after the snapshot: a resource that came free since can be granted and
	// leaves no trace to tell by. There acquire before the transaction begins, and guard in it.
	//
	// Errors: as [Store.Acquire]; [ErrGuarded] when this very transaction guards the resource; [ErrStaleSnapshot];
	// [ErrSerialization].
	Acquire(ctx context.Context, request Request) (Lock, error)

	// Renew is [Store.Renew] as a part of the transaction. The grant must name its token. Until the transaction ends,
	// renewals by others are refused as [ErrBusy].
	//
	// Errors: as [Store.Renew]; [ErrStaleSnapshot]; [ErrSerialization].
	Renew(ctx context.Context, grant Grant, ttl time.Duration) (Lock, error)

	// Release is [Store.Release] as a part of the transaction. The grant must name its token. Nobody else is granted the
	// resource before the transaction ends.
	//
	// Errors: as [Store.Release]; [ErrStaleSnapshot]; [ErrSerialization].
	Release(ctx context.Context, grant Grant) error

	// Guard fails unless the grant, which must name its token, is current. From then on nobody else is granted the
	// resource until the transaction ends, or the savepoint that the guard was taken in is rolled back: also past the end
	// of the lease. The holder's own renewals go on; releases by anybody wait a little and are then refused as
	// [ErrGuarded].
	//
	// In a transaction with a snapshot (REPEATABLE READ, SERIALIZABLE, SQLite) a grant that was acquired after the snapshot
	// is refused with [ErrStaleSnapshot], never as lost: such a transaction may not see what the holder before wrote. So is
	// one that the snapshot has as ended and that is not so any more. One that was merely renewed since may pass: its
	// holder was the holder already.
	//
	// A guard that is refused just as its lease ends can keep others from acquiring the resource all the same, until the
	// transaction ends: roll back what was not allowed to write.
	//
	// Errors: [*LostError] as [Store.Renew]; [ErrStaleSnapshot]; [ErrSerialization]; [ErrBusy]; [ErrInvalid].
	Guard(ctx context.Context, grant Grant) error

	// OnEnd has fn called once with how the transaction ended, as soon as the store is told; at once where it has ended.
	// Functions are called in their order, by whoever tells.
	OnEnd(fn func(Outcome))
}

// Transactor is a store that can begin transactions by itself.
type Transactor interface {
	// InTx runs fn in a new transaction, which is committed when fn returns nil and rolled back otherwise, also when fn
	// panics. It returns fn's error, or that of begin or commit. It does not try again.
	InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error
}

// Outcome is how a transaction ended.
type Outcome int

// The outcomes.
const (
	// Committed: all that was done in the transaction is so.
	Committed Outcome = iota + 1
	// RolledBack: nothing of it is.
	RolledBack
	// Unknown: the commit was sent and its answer is missing. Either may be the case.
	Unknown
)

// String returns the outcome in words.
func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled back"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// ValidateExact is [Grant.Validate] where [AnyToken] will not do: in a transaction a grant names its token.
func (g Grant) ValidateExact() error {
	if err := g.Validate(); err != nil {
		return err
	}
	return ValidateToken(g.Token)
}

// askTx calls the store within a caller's transaction. Unlike ask it waits for the call to return: the transaction is
// the caller's to go on with, and must not be in use on another goroutine then. The context ends after the call limit.
func askTx[T any](ctx context.Context, l *Locker, fn func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, l.config.callLimit)
	defer cancel()
	value, err := fn(bounded)
	return value, faultOf(ctx, err)
}
