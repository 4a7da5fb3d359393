package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A transaction takes an invoice to send it. Others see the lease with the commit, and the sending goes on after it.
func ExampleLocker_TryAcquireTx() {
	ctx := context.Background()
	store := memstore.New() // in an application: bunstore, and a transaction of the application's own
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	tx, err := store.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit

	lease, err := locker.TryAcquireTx(ctx, tx, "invoice:42")
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.Get(ctx, "invoice:42")
	fmt.Println("seen by others before the commit:", err == nil)
	_, err = locker.TryAcquire(ctx, "invoice:42")
	fmt.Println("refused to others:", errors.Is(err, locks.ErrHeld))

	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = locker.Get(ctx, "invoice:42")
	fmt.Println("seen by others after the commit:", err == nil)
	fmt.Println("released:", lease.Release(ctx) == nil)
	// Output:
	// seen by others before the commit: false
	// refused to others: true
	// seen by others after the commit: true
	// released: true
}

// A worker that slept past its lease wakes up and writes: the guard in its transaction refuses it.
func ExampleLease_GuardTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.TryAcquire(ctx, "account:7")
	if err != nil {
		log.Fatal(err)
	}
	write := func() error {
		return store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
			if err := lease.GuardTx(ctx, tx); err != nil {
				return err
			}
			fmt.Println("writes the balance") // with tx, in an application
			return nil
		})
	}
	fmt.Println("in time:", write())

	store.Expire("account:7") // the worker sleeps
	fmt.Println("too late, refused:", errors.Is(write(), locks.ErrLost))
	// Output:
	// writes the balance
	// in time: <nil>
	// too late, refused: true
}

func ExampleLease_RenewTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.TryAcquire(ctx, "import:customers")
	if err != nil {
		log.Fatal(err)
	}
	before := lease.Deadline()
	err = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
		err := lease.RenewTx(ctx, tx) // beside the batch that it writes
		fmt.Println("deadline moved before the commit:", lease.Deadline().After(before))
		return err
	})
	fmt.Println("deadline moved with the commit:", lease.Deadline().After(before), err)
	// Output:
	// deadline moved before the commit: false
	// deadline moved with the commit: true <nil>
}

// The result is written and the lease released with one commit.
func ExampleLease_ReleaseTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.TryAcquire(ctx, "report:2026-05")
	if err != nil {
		log.Fatal(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error { return lease.ReleaseTx(ctx, tx) })
	fmt.Println(err, "-", context.Cause(lease.Context()))
	// Output:
	// <nil> - locks: lease is released
}

// Acquire, work and release in one transaction: all of it is committed, or nothing.
func ExampleLocker_TryDoTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	bill := func(fault error) error {
		return locker.TryDoTx(ctx, store, "invoice:42", func(_ context.Context, _ locks.Tx, lease *locks.Lease) error {
			fmt.Println("bills under token", lease.Token())
			return fault
		})
	}
	fmt.Println(bill(nil))
	fmt.Println(bill(errors.New("customer is unknown")))
	fmt.Println("rows left:", store.Rows())
	// Output:
	// bills under token 1
	// <nil>
	// bills under token 2
	// customer is unknown
	// rows left: 0
}

func ExampleLocker_DoTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	err = locker.DoTx(ctx, store, "report:2026-05", func(ctx context.Context, _ locks.Tx, _ *locks.Lease) error {
		fmt.Println("waited for whoever had the report, and writes it")
		return ctx.Err() // the work's context ends when the lease does
	})
	fmt.Println(err)
	// Output:
	// waited for whoever had the report, and writes it
	// <nil>
}

// A transfer needs both accounts, or none.
func ExampleLocker_TryAcquireAll() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	set, err := locker.TryAcquireAll(ctx, []string{"account:7", "account:4"})
	if err != nil {
		log.Fatal(err)
	}
	for _, lease := range set.Leases() {
		fmt.Println(lease.Resource())
	}
	_, err = locker.TryAcquireAll(ctx, []string{"account:9", "account:7"})
	fmt.Println("held:", errors.Is(err, locks.ErrHeld))
	_, err = locker.Get(ctx, "account:9")
	fmt.Println("the other is left free:", errors.Is(err, locks.ErrNotFound))
	fmt.Println("released:", set.Release(ctx) == nil)
	// Output:
	// account:4
	// account:7
	// held: true
	// the other is left free: true
	// released: true
}

func ExampleLocker_AcquireAll() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	set, err := locker.AcquireAll(context.Background(), []string{"account:7", "account:4"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = set.Release(context.Background()) }()
	fmt.Println("trusted:", set.Err() == nil, set.Lease("account:7").Resource())
	// Output:
	// trusted: true account:7
}

func ExampleLeaseSet_GuardTx() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	set, err := locker.TryAcquireAll(ctx, []string{"account:7", "account:4"})
	if err != nil {
		log.Fatal(err)
	}
	err = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
		if err := set.GuardTx(ctx, tx); err != nil {
			return err
		}
		fmt.Println("moves the money")
		return nil
	})
	fmt.Println(err, set.Release(ctx))
	// Output:
	// moves the money
	// <nil> <nil>
}
