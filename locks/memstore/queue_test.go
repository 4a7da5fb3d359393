package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func ask(owner string) locks.Request {
	return locks.Request{Resource: "job:42", Owner: owner, Attempt: "1", TTL: time.Hour}
}

func enqueue(tb testing.TB, store *memstore.Store, request locks.Request) locks.Place {
	tb.Helper()
	place, err := store.Enqueue(tb.Context(), request, 0)
	if err != nil {
		tb.Fatalf("Enqueue: %v", err)
	}
	return place
}

// acquired is how long a waiter's acquire took until it was granted, in virtual time.
func acquired(tb testing.TB, store *memstore.Store, request locks.Request, place locks.Place) time.Duration {
	tb.Helper()
	began := time.Now()
	for range 1000 {
		<-place.Turn()
		if _, err := store.Acquire(tb.Context(), request); err == nil {
			place.Served()
			return time.Since(began)
		}
	}
	tb.Fatal("told a thousand times in vain")
	return 0
}

// Whatever frees a resource wakes the first one at once: no virtual time goes by. It does not depend on a look.
func TestWokenAtOnce(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]func(tb testing.TB, store *memstore.Store, held locks.Lock){
		"a release": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			if err := store.Release(tb.Context(), held.Grant()); err != nil {
				tb.Error(err)
			}
		},
		"a release by attempt": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			if err := store.ReleaseAttempt(tb.Context(), held.Resource, held.Owner, "1"); err != nil {
				tb.Error(err)
			}
		},
		"a forced release": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			if _, err := store.ForceRelease(tb.Context(), held.Resource, held.Token); err != nil {
				tb.Error(err)
			}
		},
		"a release in a transaction": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			tx := begin(tb, store)
			if err := tx.Release(tb.Context(), held.Grant()); err != nil {
				tb.Error(err)
			}
			if err := tx.Commit(tb.Context()); err != nil {
				tb.Error(err)
			}
		},
		"a rollback of what took it over": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			store.Expire(held.Resource)
			tx := begin(tb, store)
			taking := ask("worker-9")
			taking.Barge = true
			if _, err := tx.Acquire(tb.Context(), taking); err != nil {
				tb.Error(err)
			}
			time.Sleep(10*time.Second + time.Microsecond) // what the first one was told meanwhile was in vain
			if err := tx.Rollback(tb.Context()); err != nil {
				tb.Error(err)
			}
		},
		"a commit of what guarded it past its end": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			tx := begin(tb, store)
			if err := tx.Guard(tb.Context(), held.Grant()); err != nil {
				tb.Error(err)
			}
			store.Expire(held.Resource)
			time.Sleep(10*time.Second + time.Microsecond)
			if err := tx.Commit(tb.Context()); err != nil {
				tb.Error(err)
			}
		},
		"the first one's leaving": func(tb testing.TB, store *memstore.Store, held locks.Lock) {
			tb.Helper()
			store.Expire(held.Resource)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store memstore.Store
				held, err := store.Acquire(t.Context(), ask("worker-1"))
				if err != nil {
					t.Fatal(err)
				}
				gone := enqueue(t, &store, ask("worker-2"))
				first := enqueue(t, &store, ask("worker-3"))
				if name != "the first one's leaving" {
					if err := gone.Leave(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				waited := make(chan time.Duration, 1)
				go func() { waited <- acquired(t, &store, ask("worker-3"), first) }()
				time.Sleep(time.Minute + 7*time.Microsecond) // apart from the looks
				began := time.Now()
				free(t, &store, held)
				if name == "the first one's leaving" {
					if err := gone.Leave(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				freed := time.Since(began)
				if got, want := <-waited, time.Minute+7*time.Microsecond+freed; got != want {
					t.Errorf("granted after %v, want %v", got, want)
				}
			})
		})
	}
}

// A lease that ends by time is taken within a millisecond, and its taker's own time begins there.
func TestWaitForTheEndOfALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		held, err := store.Acquire(t.Context(), ask("worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := locks.Wait(t.Context(), &store, ask("worker-2"), locks.WaitOptions{}, func(ctx context.Context) (locks.Lock, error) {
			return store.Acquire(ctx, ask("worker-2"))
		})
		if late := lock.AcquiredAt.Sub(held.ExpiresAt); err != nil || late < 0 || late > time.Millisecond {
			t.Errorf("granted %v after the end, %v", late, err)
		}
		if got := lock.ExpiresAt.Sub(lock.AcquiredAt); got != time.Hour {
			t.Errorf("granted for %v, want an hour from the grant", got)
		}
		if n := store.Tickets(); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}

// A place is kept for as long as its process runs.
func TestTicketsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		if _, err := store.Acquire(t.Context(), locks.Request{Resource: "job:42", Owner: "worker-1", Attempt: "1", TTL: locks.MaxTTL}); err != nil {
			t.Fatal(err)
		}
		place := enqueue(t, &store, ask("worker-2"))
		time.Sleep(23 * time.Hour)
		queue, err := store.Waiters(t.Context(), "job:42", 1)
		if n := store.Tickets(); n != 1 {
			t.Errorf("%d tickets, want one", n)
		}
		if err != nil || queue.Waiting != 1 || queue.Waiters[0].Number != place.Waiter().Number || place.Lapsed() {
			t.Errorf("after a day's wait: %+v, %v, lapsed %v", queue, err, place.Lapsed())
		}
		if err := place.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A waiter that is not there any more delays those behind it for as long as its ticket lasts, and no longer.
func TestDeadWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		dead := enqueue(t, &store, ask("worker-1"))
		dead.Served() // nobody keeps its ticket
		second := enqueue(t, &store, ask("worker-2"))
		acquired(t, &store, ask("worker-2"), second)
		if late := time.Since(dead.Waiter().ExpiresAt); late < 0 || late > time.Millisecond {
			t.Errorf("granted %v after the end of the ticket", late)
		}
	})
}

// A waiter is told soon that its ticket has ended, also while others are before it, and has a new one if it queues again.
func TestLapsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		enqueue(t, &store, ask("worker-1")).Served() // goes on in another process, so to speak
		lapsed := enqueue(t, &store, ask("worker-2"))
		store.ExpireTicket(lapsed.Waiter().Number)
		time.Sleep(2 * time.Second) // before tickets are kept
		if !lapsed.Lapsed() {
			t.Error("it is not told")
		}
		again := enqueue(t, &store, ask("worker-2"))
		queue, err := store.Waiters(t.Context(), "job:42", 10)
		if n := store.Tickets(); err != nil || queue.Waiting != 2 || n != 2 || queue.Waiters[1].Number != again.Waiter().Number {
			t.Errorf("%+v, %d tickets, %v, want it behind the first one as %+v", queue, n, err, again.Waiter())
		}
		if err := again.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Tickets that nobody keeps are forgotten: as soon as their line is asked for, when others are kept, and with a purge.
func TestEndedTicketsDoNotPileUp(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(tb testing.TB, store *memstore.Store){
		"a try": func(tb testing.TB, store *memstore.Store) {
			tb.Helper()
			if _, err := store.Acquire(tb.Context(), ask("worker-1")); err != nil {
				tb.Error(err)
			}
		},
		"who comes next": func(tb testing.TB, store *memstore.Store) {
			tb.Helper()
			if err := enqueue(tb, store, ask("worker-1")).Leave(tb.Context()); err != nil {
				tb.Error(err)
			}
		},
		"a list": func(tb testing.TB, store *memstore.Store) {
			tb.Helper()
			if queue, err := store.Waiters(tb.Context(), "job:42", 10); err != nil || queue.Waiting != 0 {
				tb.Errorf("%+v, %v, want nobody", queue, err)
			}
		},
		"a purge": func(tb testing.TB, store *memstore.Store) {
			tb.Helper()
			if n, err := store.Purge(tb.Context(), 1); err != nil || n != 0 {
				tb.Errorf("purged %d, %v, want no lease", n, err)
			}
		},
		"a waiter elsewhere": func(tb testing.TB, store *memstore.Store) {
			tb.Helper()
			elsewhere := ask("worker-1")
			elsewhere.Resource = "job:43"
			place := enqueue(tb, store, elsewhere)
			time.Sleep(time.Minute)
			if err := place.Leave(tb.Context()); err != nil {
				tb.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var store memstore.Store
				var places []locks.Place
				for i := range 10 {
					place := enqueue(t, &store, ask(fmt.Sprintf("dead-%d", i)))
					places = append(places, place)
					store.ExpireTicket(place.Waiter().Number)
				}
				for _, place := range places {
					place.Served() // the process does not go on with it, and does not say so either
				}
				forget(t, &store)
				if n := store.Tickets(); n != 0 {
					t.Errorf("%d ended tickets are left", n)
				}
			})
		})
	}
}

// A retry that queued after its attempt had been granted leaves no ticket in the way of others.
func TestRetryAfterTheGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memstore.Store
		held, err := store.Acquire(t.Context(), ask("worker-1"))
		if err != nil {
			t.Fatal(err)
		}
		place := enqueue(t, &store, ask("worker-1"))
		again, err := store.Acquire(t.Context(), ask("worker-1"))
		if err != nil || again.Token != held.Token {
			t.Errorf("the retry: %+v, %v, want its grant %+v", again, err, held)
		}
		place.Served()
		if n := store.Tickets(); n != 0 {
			t.Errorf("%d tickets are left", n)
		}
	})
}

func TestQueueLooksAtItsContext(t *testing.T) {
	t.Parallel()
	var store memstore.Store
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Enqueue(ended, locks.Request{}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue: %v, want context.Canceled", err)
	}
	if _, err := store.Waiters(ended, "", -1); !errors.Is(err, context.Canceled) {
		t.Errorf("Waiters: %v, want context.Canceled", err)
	}
	store.ExpireTicket(1) // nobody's
	if n := store.Tickets(); n != 0 {
		t.Errorf("%d tickets, want none", n)
	}
}
