package locks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestTryAcquireIsRefusedWithTheHoldersFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		first := tryAcquire(t, locker, "job:42")
		time.Sleep(time.Second)
		_, err := locker.TryAcquire(t.Context(), "job:42")
		var held *locks.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("err = %v, want a HeldError", err)
		}
		wantErr(t, err, locks.ErrHeld)
		if held.Holder == nil || held.Holder.Grant() != first.Grant() || held.Remaining != 29*time.Second {
			t.Errorf("HeldError = %+v, want the holder with 29 s left", held)
		}
	})
}

func TestOwnersAndAttemptsAreRandomUnlessNamed(t *testing.T) {
	locker := newLocker(t, memstore.New())
	a, b := tryAcquire(t, locker, "a"), tryAcquire(t, locker, "b")
	if a.Owner() == b.Owner() || len(a.Owner()) < 20 {
		t.Errorf("owners %q and %q, want two random ones", a.Owner(), b.Owner())
	}
	named := tryAcquire(t, locker, "c", locks.WithOwner("w1"), locks.WithAttempt("try-1"))
	again := tryAcquire(t, locker, "c", locks.WithOwner("w1"), locks.WithAttempt("try-1"))
	if again.Grant() != named.Grant() {
		t.Errorf("same attempt got %+v, want its own grant %+v", again.Grant(), named.Grant())
	}
	other := tryAcquire(t, locker, "c", locks.WithOwner("w1"))
	if other.Token() <= named.Token() {
		t.Errorf("new attempt got token %d, want more than %d", other.Token(), named.Token())
	}
}

func TestAcquireWaitsForTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := newLocker(t, memstore.New())
		first := tryAcquire(t, locker, "job:42")
		go func() {
			time.Sleep(10 * time.Minute)
			if err := first.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		}()
		start := time.Now()
		second, err := locker.Acquire(t.Context(), "job:42")
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		if waited := time.Since(start); waited < 10*time.Minute || waited > 10*time.Minute+locks.DefaultMaxBackoff {
			t.Errorf("waited %v, want 10 minutes and at most one pause", waited)
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d, want a larger one", second.Token(), first.Token())
		}
	})
}

// A killed holder: nobody renews, nobody releases. The waiter is there when the lease ends.
func TestAcquireTakesOverWhenTheHoldersLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		dead := locks.Request{Resource: "job:42", Owner: "dead", Attempt: "1", TTL: 30 * time.Second}
		if _, err := store.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		locker := newLocker(t, store, locks.WithBackoff(50*time.Millisecond, time.Hour))
		start := time.Now()
		if _, err := locker.Acquire(t.Context(), "job:42"); err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		if waited := time.Since(start); waited < 30*time.Second || waited > 30*time.Second+50*time.Millisecond {
			t.Errorf("waited %v, want the TTL and at most the least backoff", waited)
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		lease := tryAcquire(t, locker, "job:42")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := locker.Acquire(ctx, "job:42")
		wantErr(t, err, context.DeadlineExceeded, locks.ErrHeld)
		if waited := time.Since(start); waited != 2*time.Second {
			t.Errorf("waited %v, want 2 s", waited)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantFree(t, store, "job:42") // the wait that ended acquires nothing later
	})
}

// The context ends while the store is being asked once more, or after a fault: what was known before is told with it.
func TestAcquireTellsWhatTheLastTryMet(t *testing.T) {
	for name, test := range map[string]struct {
		then func(ctx context.Context, n int) error // the tries after the first
		want []error
	}{
		"held, then no answer": {func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }, []error{context.DeadlineExceeded, locks.ErrHeld}},
		"held, a fault, then no answer": {func(ctx context.Context, n int) error {
			if n == 2 {
				return errFault
			}
			<-ctx.Done()
			return ctx.Err()
		}, []error{context.DeadlineExceeded, errFault}},
		"held, then busy": {func(context.Context, int) error { return locks.ErrBusy }, []error{context.DeadlineExceeded, locks.ErrBusy}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, calls := &hookedStore{Store: memstore.New()}, new(atomic.Int32)
				acquireDirectly(t, store, "job:42", "other")
				store.onAcquire = func(ctx context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
					if calls.Add(1) == 1 {
						return call()
					}
					return locks.Lock{}, test.then(ctx, int(calls.Load()))
				}
				locker := newLocker(t, store, locks.WithBackoff(time.Second, time.Second))
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				_, err := locker.Acquire(ctx, "job:42")
				wantErr(t, err, test.want...)
			})
		})
	}
}

// As long as a server takes to restart, though a connection that is refused answers at once; no longer.
func TestAcquireOutlivesFaultsForAWhile(t *testing.T) {
	for name, test := range map[string]struct {
		down time.Duration
		want error
	}{"a restart": {8 * time.Second, nil}, "for ever": {time.Hour, errFault}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				store := &hookedStore{Store: memstore.New()}
				store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
					if time.Since(start) < test.down {
						return locks.Lock{}, errFault
					}
					return call()
				}
				locker := newLocker(t, store)
				_, err := locker.Acquire(t.Context(), "job:42")
				if !errors.Is(err, test.want) {
					t.Fatalf("err = %v, want %v", err, test.want)
				}
				if errors.Is(err, locks.ErrHeld) {
					t.Errorf("a fault was reported as held: %v", err)
				}
				if waited := time.Since(start); waited > 12*time.Second {
					t.Errorf("gave up after %v", waited)
				}
			})
		})
	}
}

// The answer is lost after the store granted: a retry of the wait finds the same grant, and nothing else is granted.
func TestAcquireFindsTheGrantWhoseAnswerWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		var granted locks.Lock
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			if granted.Token == 0 {
				granted = lock
				return locks.Lock{}, errFault
			}
			return lock, err
		}
		locker := newLocker(t, store)
		lease, err := locker.Acquire(t.Context(), "job:42")
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		if lease.Grant() != granted.Grant() || !lease.Lock().AcquiredAt.Equal(granted.AcquiredAt) {
			t.Errorf("got %+v, want the first grant %+v", lease.Lock(), granted)
		}
		if trusted := lease.Deadline().Sub(granted.AcquiredAt); trusted > locks.DefaultTTL-locks.DefaultTTL/10 {
			t.Errorf("trusted for %v from the grant, want at most TTL less margin", trusted)
		}
	})
}

// Whatever happens to the answer of a single try, the resource is free again long before the TTL.
func TestTryAcquireWithoutAnAnswerLeavesNothingBehind(t *testing.T) {
	type hook = func(context.Context, locks.Request, func() (locks.Lock, error)) (locks.Lock, error)
	tests := map[string]struct {
		hook hook
		want error
	}{
		"answer lost": {func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			_, _ = call()
			return locks.Lock{}, errFault
		}, errFault},
		"answer slower than the context": {func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			time.Sleep(3 * time.Second)
			return lock, err
		}, context.DeadlineExceeded},
		"hung beyond every limit, granted at last": {func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(20 * time.Second)
			return call()
		}, context.DeadlineExceeded},
		"request still on its way when the caller gave up": {func(ctx context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			go func() {
				time.Sleep(3 * time.Second)
				_, _ = call()
			}()
			<-ctx.Done()
			return locks.Lock{}, errors.New("driver: interrupted")
		}, context.DeadlineExceeded},
		"store panicked after it granted": {func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			_, _ = call()
			panic("nil map")
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &hookedStore{Store: memstore.New(), onAcquire: test.hook}
				locker := newLocker(t, store, locks.WithTTL(time.Hour))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				lease, err := locker.TryAcquire(ctx, "job:42")
				if err == nil || lease != nil || test.want != nil && !errors.Is(err, test.want) || errors.Is(err, locks.ErrHeld) {
					t.Fatalf("TryAcquire = %v, %v; want %v", lease, err, test.want)
				}
				if waited := time.Since(start); waited > time.Second {
					t.Errorf("returned after %v, want at most the context's second", waited)
				}
				time.Sleep(30 * time.Second)
				wantFree(t, store, "job:42")
			})
		})
	}
}

// Sent, then a pause of twice the TTL before the store decided, or before its answer came: that is no lease to hand out.
func TestNobodyIsHandedALeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		slow := true
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			lock, err := call()
			if slow {
				time.Sleep(2 * time.Second)
			}
			return lock, err
		}
		locker := newLocker(t, store, locks.WithTTL(time.Second))
		lease, err := locker.TryAcquire(t.Context(), "job:42")
		if lease != nil {
			t.Errorf("handed out a lease with deadline %v at %v", lease.Deadline(), time.Now())
		}
		wantErr(t, err, locks.ErrExpired)
		slow = false
		lease = tryAcquire(t, locker, "other")
		if left := time.Until(lease.Deadline()); left != 900*time.Millisecond {
			t.Errorf("trusted for %v, want TTL less margin", left)
		}
	})
}

// A slow answer cannot stretch trust: it counts from before the request was sent.
func TestTrustCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hookedStore{Store: memstore.New()}
		store.onAcquire = func(_ context.Context, _ locks.Request, call func() (locks.Lock, error)) (locks.Lock, error) {
			time.Sleep(2 * time.Second)
			lock, err := call()
			time.Sleep(time.Second)
			return lock, err
		}
		locker := newLocker(t, store)
		sent := time.Now()
		lease := tryAcquire(t, locker, "job:42")
		if got, want := lease.Deadline(), sent.Add(27*time.Second); !got.Equal(want) {
			t.Errorf("deadline %v, want %v: TTL less margin after the sending", got, want)
		}
	})
}

func TestAcquireContextBoundsTheAcquireNotTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type valueKey struct{}
		store := memstore.New()
		locker := newLocker(t, store)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "kept"), 100*time.Millisecond)
		lease, err := locker.Acquire(ctx, "job:42")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(5 * locks.DefaultTTL)
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
		if got := lease.Context().Value(valueKey{}); got != "kept" {
			t.Errorf("context value = %v, want the acquire's", got)
		}
		wantHeldBy(t, store, lease)
	})
}

func TestAcquireRefusesBadInputBeforeTheStoreSeesIt(t *testing.T) {
	store := &hookedStore{Store: memstore.New()}
	store.onAcquire = func(context.Context, locks.Request, func() (locks.Lock, error)) (locks.Lock, error) {
		t.Error("the store was asked")
		return locks.Lock{}, errFault
	}
	locker := newLocker(t, store)
	for name, test := range map[string]struct {
		resource string
		option   locks.AcquireOption
		field    string
	}{
		"no resource":       {"", locks.WithTTL(time.Second), "resource"},
		"control character": {"a\x00b", locks.WithTTL(time.Second), "resource"},
		"owner":             {"a", locks.WithOwner(""), "owner"},
		"attempt":           {"a", locks.WithAttempt("\xff"), "attempt"},
		"short TTL":         {"a", locks.WithTTL(99 * time.Millisecond), "ttl"},
		"long TTL":          {"a", locks.WithTTL(24*time.Hour + 1), "ttl"},
		"negative TTL":      {"a", locks.WithTTL(-1), "ttl"},
		"metadata":          {"a", locks.WithMetadata([]byte(`[1]`)), "metadata"},
		"interval":          {"a", locks.WithRenewalInterval(11 * time.Second), "renewal interval"},
		"tiny interval":     {"a", locks.WithRenewalInterval(1), "renewal interval"},
		"tiny margin":       {"a", locks.WithMargin(1), "margin"},
		"big metadata":      {"a", locks.WithMetadata([]byte(`{"a":"` + strings.Repeat("x", locks.MaxMetadataBytes-7) + `"}`)), "metadata"},
		"margin":            {"a", locks.WithMargin(20 * time.Second), "margin"},
		"max hold":          {"a", locks.WithMaxHold(0), "max hold"},
		"nil option":        {"a", nil, "option"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := locker.TryAcquire(t.Context(), test.resource, test.option)
			var invalid *locks.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != test.field {
				t.Errorf("err = %v, want an InvalidError for %q", err, test.field)
			}
			wantErr(t, err, locks.ErrInvalid)
		})
	}
}

func TestNewRefusesBadOptions(t *testing.T) {
	for field, option := range map[string]locks.Option{
		"ttl": locks.WithTTL(0), "renewal interval": locks.WithRenewalInterval(-1), "margin": locks.WithMargin(time.Hour),
		"release limit": locks.WithReleaseLimit(0), "call limit": locks.WithCallLimit(-1), "backoff": locks.WithBackoff(2, 1),
		"observer": locks.WithObserver(locks.ObserverFunc(nil)), "logger": locks.WithLogger(nil), "option": nil,
	} {
		_, err := locks.New(memstore.New(), option)
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("err = %v, want an InvalidError for %q", err, field)
		}
	}
	for _, option := range []locks.Option{
		locks.WithBackoff(1, time.Second), locks.WithBackoff(time.Second, 1<<62), locks.WithObserver(nil), locks.WithCallLimit(1 << 62),
	} {
		if _, err := locks.New(memstore.New(), option); !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("err = %v, want ErrInvalid", err)
		}
	}
	if _, err := locks.New(nil); !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("New(nil) = %v, want ErrInvalid", err)
	}
}
