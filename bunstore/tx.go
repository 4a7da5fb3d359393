package bunstore

import (
	"context"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// Tx is a transaction of the host in which leases are acquired, renewed, released and guarded: a [locks.Tx]. It is also
// the host's handle, so that queries run on it; where that is a connection, as in [Store.RunInTx] on SQLite, bun's own
// BeginTx and RunInTx on it fail: use [Tx.Savepoint]. It is for one goroutine at a time; a call beside another, or on the
// outer Tx while a function runs in a savepoint of it, is refused as [locks.ErrInvalid].
//
// [Store.RunInTx] gives one that it ends itself; who has one of [Store.Tx] says with [Tx.End] how it ended.
type Tx struct {
	bun.IDB
	store  *Store
	engine txEngine

	busy sync.Mutex // held by the call, or the savepoint's function, that runs
	mu   sync.Mutex
	// outcome is 0 until somebody says how it ended.
	outcome locks.Outcome
	onEnd   []func(locks.Outcome)
	changed bool // a lease was acquired, renewed or released in it
}

var (
	_ locks.Tx            = (*Tx)(nil)
	_ bun.IDB             = (*Tx)(nil)
	_ transaction.Wrapper = (*Tx)(nil)
)

// txEngine is the statements of one dialect on one transaction. What it is given is valid, its context has a deadline.
type txEngine interface {
	acquire(ctx context.Context, request locks.Request) (locks.Lock, error)
	renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error)
	// release returns the ticket whose turn it is after the commit, 0 for none, and announces it to its channel by then.
	release(ctx context.Context, grant locks.Grant) (next int64, err error)
	guard(ctx context.Context, grant locks.Grant) error
	// savepoint runs fn in a savepoint, which is undone when that fails. The engine is for use in it.
	savepoint(ctx context.Context, fn func(txEngine) error) error
	// rolledBack is told of the rollback that the host was asked to tell of.
	rolledBack()
	// alive fails where an error has aborted the transaction, and a commit would be a rollback.
	alive(ctx context.Context) error
}

// Tx returns the transaction as one that leases can be changed in: of a [bun.Tx], that of a savepoint too, or of a
// [bun.Conn] on which the host has begun one by hand. It asks the database nothing. The host says with [Tx.End] how the
// transaction ended; until then leases that were acquired in it are pending, and are not renewed.
//
// It does not own the transaction: it neither commits nor rolls back. Make one for a transaction, not one for each call.
// For a savepoint use [Tx.Savepoint], or End the Tx of one that was rolled back, also where it only guarded; one that was
// released has not ended.
//
// Errors: [locks.ErrInvalid] for the transaction: nil, or a *bun.DB, each of whose statements is one of its own.
func (s *Store) Tx(handle bun.IDB) (*Tx, error) {
	q, conn, err := transaction.Of(handle)
	if err != nil {
		return nil, err
	}
	return &Tx{IDB: handle, store: s, engine: s.engine.tx(q, conn)}, nil
}

// TxFrom returns the transaction as the handle that queries run on, or nil when it is none of this package. It is for
// functions that are given a [locks.Tx], such as those of [locks.Locker.TryDoTx].
func TxFrom(tx locks.Tx) *Tx {
	t, _ := tx.(*Tx)
	return t
}

// Unwrap returns the host's own handle.
func (t *Tx) Unwrap() bun.IDB {
	if t == nil {
		return nil
	}
	return t.IDB
}

// Acquire implements [locks.Tx]. It runs in a savepoint of its own, which is undone when it is refused. Under REPEATABLE READ
// and SERIALIZABLE the transaction sees the resource's queue, too, as it was at its snapshot, and can overtake who came since.
func (t *Tx) Acquire(ctx context.Context, request locks.Request) (lock locks.Lock, err error) {
	err = t.do(ctx, "acquire", request.ValidateExclusive(), true, func(ctx context.Context) error {
		lock, err = t.engine.acquire(ctx, request)
		return err
	})
	if err != nil {
		return locks.Lock{}, err
	}
	return lock, nil
}

// Renew implements [locks.Tx].
func (t *Tx) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (lock locks.Lock, err error) {
	valid := grant.ValidateExact()
	if valid == nil {
		valid = locks.ValidateTTL(ttl)
	}
	err = t.do(ctx, "renew", valid, true, func(ctx context.Context) error {
		lock, err = t.engine.renew(ctx, grant, ttl)
		return err
	})
	if err != nil {
		return locks.Lock{}, err
	}
	return lock, nil
}

// Release implements [locks.Tx]. Who waits is told at the commit; who comes between this call and the commit, or under
// REPEATABLE READ and SERIALIZABLE since the snapshot, is not, and finds out by looking, see [WithPoll].
func (t *Tx) Release(ctx context.Context, grant locks.Grant) error {
	var next int64
	err := t.do(ctx, "release", grant.ValidateExact(), true, func(ctx context.Context) (err error) {
		next, err = t.engine.release(ctx, grant)
		return err
	})
	if err == nil && next != 0 {
		t.OnEnd(func(outcome locks.Outcome) {
			if outcome != locks.RolledBack {
				t.store.front.Wake(next)
			}
		})
	}
	return err
}

// Guard implements [locks.Tx]. It is one statement. On SQLite it takes the file's write lock, so that everybody else's
// writes wait until the transaction ends, the holder's renewals too.
func (t *Tx) Guard(ctx context.Context, grant locks.Grant) error {
	return t.do(ctx, "guard", grant.ValidateExact(), false, func(ctx context.Context) error {
		return t.engine.guard(ctx, grant)
	})
}

// OnEnd implements [locks.Tx].
func (t *Tx) OnEnd(fn func(locks.Outcome)) {
	t.mu.Lock()
	outcome := t.outcome
	if outcome == 0 {
		t.onEnd = append(t.onEnd, fn)
	}
	t.mu.Unlock()
	if outcome != 0 {
		fn(outcome)
	}
}

// End says how the host's transaction ended, right after its commit or rollback has returned; [OutcomeOf] tells for a
// commit. Leases that were acquired in it are then renewed, or lost. A second End does nothing.
func (t *Tx) End(outcome locks.Outcome) {
	t.mu.Lock()
	if t.outcome != 0 {
		t.mu.Unlock()
		return
	}
	t.outcome = outcome
	told := t.onEnd
	t.onEnd = nil
	t.mu.Unlock()
	if outcome == locks.RolledBack && t.engine != nil {
		t.engine.rolledBack()
	}
	tell(told, outcome)
}

// tell calls the functions in their order. One that panics does not keep the others from being told.
func tell(told []func(locks.Outcome), outcome locks.Outcome) {
	if len(told) == 0 {
		return
	}
	defer tell(told[1:], outcome)
	told[0](outcome)
}

// Savepoint runs fn in a savepoint, which is released when fn returns nil and rolled back otherwise, also when fn
// panics: leases that were acquired in it are then lost, and its guards are void. What it keeps ends with t.
//
// Errors: fn's; [locks.ErrInvalid] for a transaction that is over; or the database's.
func (t *Tx) Savepoint(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	if fn == nil {
		return &locks.InvalidError{Field: "function", Reason: "must not be nil"}
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.busy.Unlock()
	inner := &Tx{IDB: t.IDB, store: t.store}
	released := false
	defer func() {
		if !released {
			inner.End(locks.RolledBack)
			return
		}
		if inner.changed {
			t.mu.Lock()
			t.changed = true
			t.mu.Unlock()
		}
		t.OnEnd(inner.End)
	}()
	var failed error // fn's, which is the caller's own
	err := t.engine.savepoint(ctx, func(engine txEngine) error {
		inner.engine = engine
		failed = fn(ctx, inner)
		return failed
	})
	released = err == nil
	if failed != nil {
		return failed
	}
	return dberror.Wrap(ctx, "bunstore: savepoint", err)
}

// alive looks at a transaction that leases were changed in before it is committed: some drivers say nothing when that
// turned out to be a rollback.
func (t *Tx) alive(ctx context.Context) error {
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	if !changed {
		return nil
	}
	ctx, cancel := t.store.bound(ctx)
	defer cancel()
	return dberror.Wrap(ctx, "bunstore: transaction", t.engine.alive(ctx))
}

// enter refuses a transaction that is none, or over, or in use, and otherwise takes busy for the caller.
func (t *Tx) enter() error {
	if t == nil || t.engine == nil {
		return &locks.InvalidError{Field: "transaction", Reason: "must not be nil or zero: Store.Tx makes one"}
	}
	t.mu.Lock()
	outcome := t.outcome
	t.mu.Unlock()
	if outcome != 0 {
		return &locks.InvalidError{Field: "transaction", Reason: "is over: " + outcome.String()}
	}
	if !t.busy.TryLock() {
		return &locks.InvalidError{
			Field:  "transaction",
			Reason: "is in use, by another goroutine or by a savepoint's function, which has a Tx of its own",
		}
	}
	return nil
}

// do runs one call, unless its arguments are not valid, the transaction is over, or another call runs in it.
func (t *Tx) do(ctx context.Context, verb string, valid error, changes bool, call func(context.Context) error) error {
	if valid != nil {
		return valid
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.busy.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := t.store.bound(ctx)
	defer cancel()
	err := call(ctx)
	if err == nil {
		if changes {
			t.mu.Lock()
			t.changed = true
			t.mu.Unlock()
		}
		return nil
	}
	return dberror.Wrap(ctx, "bunstore: "+verb+" in a transaction", err)
}
