package locks_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

var errFault = errors.New("connection reset by peer")

// hookedStore is a memory store whose calls a test can delay, fail or lose.
type hookedStore struct {
	*memstore.Store
	onAcquire func(ctx context.Context, request locks.Request, call func() (locks.Lock, error)) (locks.Lock, error)
	onRenew   func(ctx context.Context, call func() (locks.Lock, error)) (locks.Lock, error)
	onRelease func(ctx context.Context, call func() error) error
	onAttempt func(ctx context.Context, call func() error) error
}

func (s *hookedStore) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	call := func() (locks.Lock, error) { return s.Store.Acquire(context.WithoutCancel(ctx), request) }
	if s.onAcquire == nil {
		return s.Store.Acquire(ctx, request)
	}
	return s.onAcquire(ctx, request, call)
}

func (s *hookedStore) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	call := func() (locks.Lock, error) { return s.Store.Renew(context.WithoutCancel(ctx), grant, ttl) }
	if s.onRenew == nil {
		return s.Store.Renew(ctx, grant, ttl)
	}
	return s.onRenew(ctx, call)
}

func (s *hookedStore) Release(ctx context.Context, grant locks.Grant) error {
	call := func() error { return s.Store.Release(context.WithoutCancel(ctx), grant) }
	if s.onRelease == nil {
		return s.Store.Release(ctx, grant)
	}
	return s.onRelease(ctx, call)
}

func (s *hookedStore) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	call := func() error {
		return s.Store.ReleaseAttempt(context.WithoutCancel(ctx), resource, owner, attempt)
	}
	if s.onAttempt == nil {
		return s.Store.ReleaseAttempt(ctx, resource, owner, attempt)
	}
	return s.onAttempt(ctx, call)
}

// eventLog collects what an observer is told.
type eventLog struct {
	mu     sync.Mutex
	events []locks.Event
}

func (l *eventLog) Observe(_ context.Context, event locks.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

func (l *eventLog) count(kind locks.EventKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, event := range l.events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// newLocker returns a locker that the test closes at its end. In a synctest bubble, whose clock begins in the year
// 2000, an hour then passes for calls that hang: the bubble fails if a goroutine is still there.
func newLocker(t *testing.T, store locks.Store, options ...locks.Option) *locks.Locker {
	t.Helper()
	locker, err := locks.New(store, options...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = locker.Close(ctx)
		if time.Now().Year() == 2000 {
			time.Sleep(time.Hour)
		}
	})
	return locker
}

func tryAcquire(t *testing.T, locker *locks.Locker, resource string, options ...locks.AcquireOption) *locks.Lease {
	t.Helper()
	lease, err := locker.TryAcquire(t.Context(), resource, options...)
	if err != nil {
		t.Fatalf("TryAcquire(%q): %v", resource, err)
	}
	return lease
}

func wantErr(t *testing.T, got error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(got, w) {
			t.Errorf("error is %v, want it to be %q", got, w)
		}
	}
}

func wantFree(t *testing.T, store locks.Store, resource string) {
	t.Helper()
	if lock, err := store.Get(context.Background(), resource); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("Get(%q) = %+v, %v; want it free", resource, lock, err)
	}
}

func wantHeldBy(t *testing.T, store locks.Store, lease *locks.Lease) {
	t.Helper()
	lock, err := store.Get(context.Background(), lease.Resource())
	if err != nil || lock.Grant() != lease.Grant() {
		t.Errorf("Get(%q) = %+v, %v; want the grant %+v", lease.Resource(), lock, err, lease.Grant())
	}
}
