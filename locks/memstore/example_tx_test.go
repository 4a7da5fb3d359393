package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// What a transaction acquires is a part of it: gone with a rollback, and that of a savepoint with the savepoint's.
func ExampleStore_Begin() {
	ctx := context.Background()
	store := memstore.New()
	tx, err := store.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	tx.OnEnd(func(outcome locks.Outcome) { fmt.Println("transaction is", outcome) })
	acquire := func(resource string) {
		request := locks.Request{Resource: resource, Owner: "worker-1", Attempt: "attempt-1", TTL: 30 * time.Second}
		if _, err := tx.Acquire(ctx, request); err != nil {
			log.Fatal(err)
		}
	}
	acquire("invoice:42")

	savepoint, err := tx.Savepoint(ctx)
	if err != nil {
		log.Fatal(err)
	}
	acquire("invoice:43")
	if err := savepoint.Rollback(ctx); err != nil {
		log.Fatal(err)
	}

	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	for _, resource := range []string{"invoice:42", "invoice:43"} {
		_, err := store.Get(ctx, resource)
		fmt.Println(resource, "is held:", err == nil)
	}
	// Output:
	// transaction is committed
	// invoice:42 is held: true
	// invoice:43 is held: false
}

// While a transaction guards a lease nobody else gets the resource, even past the lease's end.
func ExampleStore_InTx() {
	ctx := context.Background()
	store := memstore.New()
	request := locks.Request{Resource: "account:7", Owner: "worker-1", Attempt: "attempt-1", TTL: 30 * time.Second}
	lease, err := store.Acquire(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	request.Owner = "worker-2"
	err = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
		if err := tx.Guard(ctx, lease.Grant()); err != nil {
			return err
		}
		store.Expire("account:7")
		_, err := store.Acquire(ctx, request)
		fmt.Println("refused under the guard:", errors.Is(err, locks.ErrHeld))
		return nil
	})
	fmt.Println("committed:", err == nil)
	_, err = store.Acquire(ctx, request)
	fmt.Println("granted after it:", err == nil)
	// Output:
	// refused under the guard: true
	// committed: true
	// granted after it: true
}

func ExampleStore_AcquireAll() {
	ctx := context.Background()
	store := memstore.New()
	request := func(resource string) locks.Request {
		return locks.Request{Resource: resource, Owner: "worker-1", Attempt: "attempt-1", TTL: 30 * time.Second}
	}
	granted, err := store.AcquireAll(ctx, []locks.Request{request("account:7"), request("account:4")})
	if err != nil {
		log.Fatal(err)
	}
	for _, lock := range granted {
		fmt.Println(lock.Resource, "token", lock.Token)
	}
	// Output:
	// account:7 token 2
	// account:4 token 1
}
