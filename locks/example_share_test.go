package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Any number read a page together; whoever writes it is alone.
func ExampleWithShared() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	first, err := locker.TryAcquire(ctx, "page:7", locks.WithShared())
	if err != nil {
		log.Fatal(err)
	}
	second, err := locker.TryAcquire(ctx, "page:7", locks.WithShared())
	fmt.Println("a second reader:", err)
	_, err = locker.TryAcquire(ctx, "page:7")
	fmt.Println("a writer beside them is refused:", errors.Is(err, locks.ErrHeld))
	for _, lease := range []*locks.Lease{first, second} {
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	_, err = locker.TryAcquire(ctx, "page:7")
	fmt.Println("a writer after them:", err)
	// Output:
	// a second reader: <nil>
	// a writer beside them is refused: true
	// a writer after them: <nil>
}

// At most two of all processes call the provider at once. All of them must say the same number.
func ExampleWithSlots() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	call := func(slots int) error {
		_, err := locker.TryAcquire(ctx, "provider:mail", locks.WithSlots(slots))
		return err
	}
	fmt.Println(call(2), call(2))
	fmt.Println("the third is refused:", errors.Is(call(2), locks.ErrHeld))
	fmt.Println(call(5))
	// Output:
	// <nil> <nil>
	// the third is refused: true
	// locks: resource "provider:mail" is held in 2 slots, not in 5 slots
}

func ExampleLocker_Holders() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	for _, worker := range []string{"worker-1", "worker-2"} {
		if _, err := locker.TryAcquire(ctx, "provider:mail", locks.WithSlots(2), locks.WithOwner(worker)); err != nil {
			log.Fatal(err)
		}
	}
	holders, err := locker.Holders(ctx, "provider:mail", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, holder := range holders {
		fmt.Println(holder.Owner, "token", holder.Token)
	}
	group, err := locker.Get(ctx, "provider:mail")
	fmt.Printf("all of them: owner %q, %d slots, %v\n", group.Owner, group.Slots, err)
	// Output:
	// worker-1 token 2
	// worker-2 token 3
	// all of them: owner "", 2 slots, <nil>
}
