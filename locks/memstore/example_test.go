package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// One worker bills invoice 42, another one is told that it is held, until the first has finished.
func Example() {
	ctx := context.Background()
	store := memstore.New()
	bill := func(worker string) (locks.Lock, error) {
		return store.Acquire(ctx, locks.Request{Resource: "invoice:42", Owner: worker, Attempt: "attempt-1", TTL: 30 * time.Second})
	}

	lease, err := bill("worker-1")
	fmt.Println("worker-1:", lease.Owner, "token", lease.Token, err)

	_, err = bill("worker-2")
	fmt.Println("worker-2 is told held:", errors.Is(err, locks.ErrHeld))

	if err := store.Release(ctx, lease.Grant()); err != nil {
		fmt.Println(err)
	}
	lease, err = bill("worker-2")
	fmt.Println("worker-2:", lease.Owner, "token", lease.Token, err)
	// Output:
	// worker-1: worker-1 token 1 <nil>
	// worker-2 is told held: true
	// worker-2: worker-2 token 2 <nil>
}

// A test ends a lease through the back door instead of waiting for its TTL.
func ExampleStore_Expire() {
	ctx := context.Background()
	store := memstore.New()
	lease, _ := store.Acquire(ctx, locks.Request{Resource: "report:2026-05", Owner: "worker-1", Attempt: "attempt-1", TTL: time.Hour})

	store.Expire("report:2026-05")

	_, err := store.Renew(ctx, lease.Grant(), time.Hour)
	fmt.Println(errors.Is(err, locks.ErrExpired))
	// Output: true
}
