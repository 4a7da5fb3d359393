package locks_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// queueStore is a hooked store whose queue a test can delay, fail or lose as well, and whose acquires it can count.
type queueStore struct {
	*hookedStore
	acquires  atomic.Int32
	served    atomic.Int32
	left      atomic.Int32
	onEnqueue func(ctx context.Context, call func() (locks.Place, error)) (locks.Place, error)
	onLeave   func(call func() error) error

	mu     sync.Mutex
	places []locks.Place // that were given
	most   int           // the limit that was asked for last
}

func newQueueStore() *queueStore {
	return &queueStore{hookedStore: &hookedStore{Store: memstore.New()}}
}

func (s *queueStore) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	s.acquires.Add(1)
	return s.hookedStore.Acquire(ctx, request)
}

func (s *queueStore) Enqueue(ctx context.Context, request locks.Request, most int) (locks.Place, error) {
	s.mu.Lock()
	s.most = most
	s.mu.Unlock()
	call := func() (locks.Place, error) {
		place, err := s.Store.Enqueue(context.WithoutCancel(ctx), request, most)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.places = append(s.places, place)
			place = hookedPlace{place, s}
		}
		return place, err
	}
	if s.onEnqueue == nil {
		return call()
	}
	return s.onEnqueue(ctx, call)
}

type hookedPlace struct {
	locks.Place
	store *queueStore
}

func (p hookedPlace) Served() {
	p.store.served.Add(1)
	p.Place.Served()
}

func (p hookedPlace) Leave(ctx context.Context) error {
	p.store.left.Add(1)
	call := func() error { return p.Place.Leave(ctx) }
	if p.store.onLeave == nil {
		return call()
	}
	return p.store.onLeave(call)
}

// numbers returns the tickets that were given.
func (s *queueStore) numbers() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var numbers []int64
	for _, place := range s.places {
		numbers = append(numbers, place.Waiter().Number)
	}
	return numbers
}

func wantNoTickets(t *testing.T, store *queueStore) {
	t.Helper()
	if n := store.Tickets(); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

func wantWaiting(t *testing.T, locker *locks.Locker, resource string, want int) {
	t.Helper()
	if queue, err := locker.Waiters(context.Background(), resource, 0); err != nil || queue.Waiting != want {
		t.Errorf("Waiters(%q) = %+v, %v; want %d", resource, queue, err, want)
	}
}

// unqueued is a store without a queue.
type unqueued struct{ locks.Store }

// wantGoroutines fails if there are more than before. One that has ended may be counted for a moment longer.
func wantGoroutines(t *testing.T, before int) {
	t.Helper()
	for range 20_000_000 { // nothing depends on how fast that is
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, want the %d of before", runtime.NumGoroutine(), before)
}
