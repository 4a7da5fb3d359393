package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Two wait for a lease that is held. They are served in the order in which they came.
func ExampleLocker_Acquire_queue() {
	ctx := context.Background()
	queued := make(chan string)
	locker, err := locks.New(memstore.New(), locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventQueued {
			queued <- event.Grant.Owner
		}
	})))
	if err != nil {
		log.Fatal(err)
	}
	held, err := locker.Acquire(ctx, "report:2026-05")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan string)
	for _, owner := range []string{"worker-1", "worker-2"} {
		go func() {
			lease, err := locker.Acquire(ctx, "report:2026-05", locks.WithOwner(owner))
			if err != nil {
				log.Fatal(err)
			}
			served <- owner
			if err := lease.Release(ctx); err != nil {
				log.Fatal(err)
			}
		}()
		fmt.Println(<-queued, "waits")
	}
	if err := held.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served, "is served")
	fmt.Println(<-served, "is served")
	// Output:
	// worker-1 waits
	// worker-2 waits
	// worker-1 is served
	// worker-2 is served
}

func ExampleLocker_Waiters() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := locker.TryAcquire(ctx, "report:2026-05"); err != nil {
		log.Fatal(err)
	}
	go func() { _, _ = locker.Acquire(ctx, "report:2026-05", locks.WithOwner("worker-2")) }()
	for {
		queue, err := locker.Waiters(ctx, "report:2026-05", 10)
		if err != nil {
			log.Fatal(err)
		}
		if queue.Waiting > 0 {
			fmt.Printf("%d waits, the first is %s\n", queue.Waiting, queue.Waiters[0].Owner)
			return
		}
	}
	// Output:
	// 1 waits, the first is worker-2
}

func ExampleWithMaxWaiters() {
	ctx := context.Background()
	store := memstore.New()
	queued := make(chan struct{}, 1)
	locker, err := locks.New(store, locks.WithMaxWaiters(1), locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventQueued {
			queued <- struct{}{}
		}
	})))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := locker.TryAcquire(ctx, "report:2026-05"); err != nil {
		log.Fatal(err)
	}
	go func() { _, _ = locker.Acquire(ctx, "report:2026-05") }()
	<-queued
	_, err = locker.Acquire(ctx, "report:2026-05") // one waits already
	fmt.Println(errors.Is(err, locks.ErrQueueFull), errors.Is(err, locks.ErrHeld))
	// Output:
	// true true
}

func ExampleWithBarging() {
	ctx := context.Background()
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	// Somebody waits, and has not come to acquire yet.
	waiter := locks.Request{Resource: "cache:prices", Owner: "worker-1", Attempt: "first", TTL: time.Minute}
	place, err := store.Enqueue(ctx, waiter, 0)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "cache:prices")
	fmt.Println("a try:", errors.Is(err, locks.ErrHeld))
	lease, err := locker.TryAcquire(ctx, "cache:prices", locks.WithBarging())
	fmt.Println("a try that barges:", lease != nil, err)
	fmt.Println(place.Leave(ctx))
	// Output:
	// a try: true
	// a try that barges: true <nil>
	// <nil>
}

// Wait acquires in the name of somebody else, and keeps no lease of it: a REST API does so.
func ExampleWait() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	store := memstore.New()
	request := locks.Request{Resource: "job:42", Owner: "client-7", Attempt: "request-1", TTL: time.Minute}
	lock, err := locks.Wait(ctx, store, request, locks.WaitOptions{}, func(ctx context.Context) (locks.Lock, error) {
		return store.Acquire(ctx, request)
	})
	fmt.Println(lock.Owner, lock.Token, err)
	// Output:
	// client-7 1 <nil>
}
