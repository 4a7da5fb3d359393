package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// newExampleLocker returns a locker on a store of its own; a host has one on its database.
func newExampleLocker() *locks.Locker {
	locker, err := locks.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	return locker
}

// One of the replicas of a service runs its scheduler, until the service stops.
func Example() {
	locker := newExampleLocker()
	service, stop := context.WithCancel(context.Background())
	schedule := func(ctx context.Context, token int64) error {
		fmt.Println("the scheduler starts, term", token)
		defer fmt.Println("the scheduler has stopped")
		stop() // the service is asked to stop, in an application by a signal
		<-ctx.Done()
		return ctx.Err()
	}
	candidate, err := election.New(locker, "scheduler", election.Config{
		StopLimit: 5 * time.Second,
		Lead: func(ctx context.Context, term *locks.Lease) error {
			return schedule(ctx, term.Token()) // returns within 5 s after ctx has ended
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(candidate.Campaign(service)) // waits, leads, and waits again, until the service stops
	// Output:
	// the scheduler starts, term 1
	// the scheduler has stopped
	// context canceled
}

func ExampleNew() {
	_, err := election.New(newExampleLocker(), "scheduler", election.Config{
		TTL:       10 * time.Second,
		StopLimit: 8 * time.Second, // others would wait for less than that
		Lead:      func(context.Context, *locks.Lease) error { return nil },
	})
	fmt.Println(err)
	// Output:
	// locks: stop limit must be from 1ms to half of the TTL (10s), got 8s
}

// A leader whose work is done, or cannot be done here, returns: that ends the campaign, and others lead.
func ExampleCandidate_Campaign() {
	candidate, err := election.New(newExampleLocker(), "import", election.Config{
		Lead: func(context.Context, *locks.Lease) error {
			return errors.New("the disk is full")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(candidate.Campaign(context.Background()))
	// Output:
	// the disk is full
}

// A leader steps down for the next one, and stays a candidate.
func ExampleCandidate_Resign() {
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan string)
	lead := func(ctx context.Context, term *locks.Lease) error {
		host, _, _ := strings.Cut(term.Owner(), "/")
		started <- host
		<-ctx.Done()
		return ctx.Err()
	}
	queued := make(chan struct{}, 10)
	locker, err := locks.New(memstore.New(), locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventQueued {
			queued <- struct{}{}
		}
	})))
	if err != nil {
		log.Fatal(err)
	}
	var candidates [2]*election.Candidate
	for i, host := range []string{"host-1", "host-2"} {
		if candidates[i], err = election.New(locker, "scheduler", election.Config{Name: host, Lead: lead}); err != nil {
			log.Fatal(err)
		}
	}
	go candidates[0].Campaign(ctx)
	fmt.Println(<-started, "leads")
	go candidates[1].Campaign(ctx)
	<-queued

	resigned := make(chan error)
	go func() { resigned <- candidates[0].Resign(ctx) }()
	fmt.Println(<-started, "leads")
	fmt.Println("resigned:", <-resigned)
	stop()
	fmt.Println("closed:", locker.Close(context.Background()))
	// Output:
	// host-1 leads
	// host-2 leads
	// resigned: <nil>
	// closed: <nil>
}

// A leader that slept past the end of its term writes nothing: the term is checked in the transaction that writes.
func Example_guard() {
	service, stop := context.WithCancel(context.Background())
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}
	candidate, err := election.New(locker, "scheduler", election.Config{
		Lead: func(ctx context.Context, term *locks.Lease) error {
			write := func() error {
				return store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error {
					if err := term.GuardTx(ctx, tx); err != nil {
						return err // somebody else leads: nothing is written
					}
					fmt.Println("writes") // with tx, in an application
					return nil
				})
			}
			fmt.Println("in time:", write())
			store.Expire("scheduler") // the process sleeps, and its lease ends
			err := write()
			fmt.Println("too late, refused:", errors.Is(err, locks.ErrLost))
			stop()
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(candidate.Campaign(service))
	// Output:
	// writes
	// in time: <nil>
	// too late, refused: true
	// context canceled
}

// A health check tells whether this process leads.
func ExampleCandidate_IsLeader() {
	var candidate *election.Candidate
	candidate, err := election.New(newExampleLocker(), "scheduler", election.Config{
		Lead: func(context.Context, *locks.Lease) error {
			fmt.Println("leads:", candidate.IsLeader())
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	err = candidate.Campaign(context.Background())
	fmt.Println("leads:", candidate.IsLeader(), err)
	// Output:
	// leads: true
	// leads: false <nil>
}

// Another part of the process writes the token of the present term beside its data.
func ExampleCandidate_Term() {
	var candidate *election.Candidate
	candidate, err := election.New(newExampleLocker(), "scheduler", election.Config{
		Lead: func(context.Context, *locks.Lease) error {
			if term, leads := candidate.Term(); leads {
				fmt.Println("term", term.Token)
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := candidate.Campaign(context.Background()); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// term 1
	// term 2
}

// The leader's address is for those who do not campaign.
func ExampleObserve() {
	locker := newExampleLocker()
	ctx, stop := context.WithCancel(context.Background())
	started := make(chan struct{})
	candidate, err := election.New(locker, "scheduler", election.Config{
		Name:     "host-1",
		Metadata: json.RawMessage(`{"address":"10.0.0.7:8080"}`),
		Lead: func(ctx context.Context, _ *locks.Lease) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go candidate.Campaign(ctx)
	<-started
	route := func(leader election.Leader) {
		fmt.Printf("term %d: %s\n", leader.Token, leader.Metadata)
		stop() // enough for an example
	}
	for leader, err := range election.Observe(ctx, locker, "scheduler") {
		switch {
		case err != nil:
			log.Println("who leads is not known:", err) // and told again when it is
		case leader.Token == 0:
			log.Println("nobody leads")
		default:
			route(leader) // leader.Metadata has its address
		}
	}
	// Output:
	// term 1: {"address":"10.0.0.7:8080"}
}

// A dashboard can wait for a minute.
func ExampleWithPoll() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for leader, err := range election.Observe(ctx, newExampleLocker(), "scheduler", election.WithPoll(time.Second, time.Minute)) {
		fmt.Println(leader.Token, err)
		stop()
	}
	// Output:
	// 0 <nil>
}

// What a candidate goes through is logged.
func ExampleEvent() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attr
	}}))
	candidate, err := election.New(newExampleLocker(), "scheduler", election.Config{
		Lead: func(context.Context, *locks.Lease) error { return nil },
		Report: func(event election.Event) {
			level := slog.LevelInfo
			if event.Kind == election.EventOverstayed {
				level = slog.LevelError // Lead does not keep to its limit
			}
			logger.Log(context.Background(), level, event.Kind.String(), "resource", event.Grant.Resource, "token", event.Grant.Token)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := candidate.Campaign(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg=elected resource=scheduler token=1
	// level=INFO msg=ended resource=scheduler token=1
}
