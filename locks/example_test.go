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

func ExampleLocker_Do() {
	locker, err := locks.New(memstore.New()) // in an application: bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	err = locker.Do(context.Background(), "report:2026-05", func(ctx context.Context, lease *locks.Lease) error {
		fmt.Println("one worker writes the report, under token", lease.Token())
		return ctx.Err() // the work's context ends when the lease is lost
	})
	fmt.Println(err)
	// Output:
	// one worker writes the report, under token 1
	// <nil>
}

func ExampleLocker_TryDo() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	err = locker.TryDo(ctx, "mail:newsletter", func(context.Context, *locks.Lease) error {
		err := locker.TryDo(ctx, "mail:newsletter", func(context.Context, *locks.Lease) error {
			fmt.Println("never at the same time")
			return nil
		})
		var held *locks.HeldError
		if errors.As(err, &held) {
			fmt.Println("skipped, held for up to", held.Remaining.Round(time.Second))
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// skipped, held for up to 30s
	// <nil>
}

func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	locker, err := locks.New(memstore.New(), locks.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := locker.TryAcquire(ctx, "invoice:4711", locks.WithMetadata([]byte(`{"by":"billing"}`)))
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(ctx, "invoice:4711")
	fmt.Println("held:", errors.Is(err, locks.ErrHeld))

	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("cause:", context.Cause(lease.Context()))
	// Output:
	// held: true
	// cause: locks: lease is released
}

func ExampleLocker_Acquire() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := locker.TryAcquire(context.Background(), "printer"); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = locker.Acquire(ctx, "printer")
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, locks.ErrHeld))
	// Output:
	// true true
}

// At shutdown: the works' contexts end, the works return, the leases are freed.
func ExampleLocker_Close() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- locker.Do(context.Background(), "queue:mail", func(ctx context.Context, _ *locks.Lease) error {
			close(started)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-started
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = locker.Close(ctx)
	fmt.Println("work:", <-ended)
	fmt.Println("close:", err)
	// Output:
	// work: locks: locker is closed
	// close: <nil>
}

func ExampleJanitor() {
	store := memstore.New()
	janitor, err := locks.NewJanitor(store)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go janitor.Run(ctx) // each minute, until ctx ends

	purged, err := janitor.Purge(ctx) // or on demand
	fmt.Println(purged, err)
	// Output:
	// 0 <nil>
}
