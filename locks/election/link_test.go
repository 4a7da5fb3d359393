package election_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

var errFault = errors.New("connection reset by peer")

// state is how a link is.
type state int

const (
	whole state = iota
	cut         // nothing gets through
	deaf        // requests get through, answers do not
	slow        // requests hang for up to 8 s, whatever their context says, and are then carried out
	hung        // requests hang, whatever their context says, and are not carried out
)

// link is what one process has of a store that several share. Places in the queue do not depend on it: the store keeps them.
type link struct {
	*memstore.Store
	latency time.Duration

	mu       sync.Mutex
	is       state
	renewing state // of renewals alone
	calls    map[string]int
}

func (l *link) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.is = s
}

func (l *link) setRenewing(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = s
}

func (l *link) count(call string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[call]
}

// through is one call over the link. The store is asked under a context that has not ended: it does not know of ours.
func through[T any](ctx context.Context, l *link, name string, call func(context.Context) (T, error)) (T, error) {
	l.mu.Lock()
	if l.calls == nil {
		l.calls = make(map[string]int)
	}
	l.calls[name]++
	is := l.is
	if is == whole && name == "renew" {
		is = l.renewing
	}
	l.mu.Unlock()
	var none T
	switch is {
	case cut:
		return none, errFault
	case slow:
		time.Sleep(rand.N(8 * time.Second))
	case hung:
		time.Sleep(30 * time.Minute) // newLocker's end waits for longer
		return none, errFault
	}
	time.Sleep(l.latency)
	value, err := call(context.WithoutCancel(ctx))
	if is == deaf {
		return none, errFault
	}
	return value, err
}

func nothing(call func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) }
}

func (l *link) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	return through(ctx, l, "acquire", func(ctx context.Context) (locks.Lock, error) { return l.Store.Acquire(ctx, request) })
}

func (l *link) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	return through(ctx, l, "renew", func(ctx context.Context) (locks.Lock, error) { return l.Store.Renew(ctx, grant, ttl) })
}

func (l *link) Release(ctx context.Context, grant locks.Grant) error {
	_, err := through(ctx, l, "release", nothing(func(ctx context.Context) error { return l.Store.Release(ctx, grant) }))
	return err
}

func (l *link) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	_, err := through(ctx, l, "release", nothing(func(ctx context.Context) error {
		return l.Store.ReleaseAttempt(ctx, resource, owner, attempt)
	}))
	return err
}

func (l *link) Get(ctx context.Context, resource string) (locks.Lock, error) {
	return through(ctx, l, "get", func(ctx context.Context) (locks.Lock, error) { return l.Store.Get(ctx, resource) })
}

// newLocker returns a locker that the test closes at its end. An hour then passes for calls that hang: the bubble fails if a
// goroutine is still there.
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
		time.Sleep(time.Hour)
	})
	return locker
}

// pass lets virtual time pass, and all that is to happen until then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const resource = "scheduler"

func newCandidate(t *testing.T, locker *locks.Locker, config election.Config) *election.Candidate {
	t.Helper()
	candidate, err := election.New(locker, resource, config)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return candidate
}

// campaign is a campaign that runs.
type campaign struct {
	stop context.CancelFunc
	done chan struct{} // closed when err is set
	err  error
}

func start(t *testing.T, candidate *election.Candidate) *campaign {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &campaign{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = candidate.Campaign(ctx)
	}()
	t.Cleanup(func() { cancel(); <-c.done })
	return c
}

// result stops the campaign and returns what it returned.
func (c *campaign) result() error {
	c.stop()
	<-c.done
	return c.err
}

// untilEnd leads until the term ends.
func untilEnd(ctx context.Context, _ *locks.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

// events collects what candidates report.
type events struct {
	mu  sync.Mutex
	all []election.Event
}

func (e *events) add(event election.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) of(kind election.EventKind) (some []election.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == kind {
			some = append(some, event)
		}
	}
	return some
}

func wantErr(t *testing.T, got error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(got, w) {
			t.Errorf("error is %v, want it to be %q", got, w)
		}
	}
}

func wantFree(t *testing.T, store locks.Store) {
	t.Helper()
	if lock, err := store.Get(context.Background(), resource); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("Get = %+v, %v; want it free", lock, err)
	}
}

// leads returns the token of the candidate's present term, which there must be.
func leads(t *testing.T, candidate *election.Candidate) int64 {
	t.Helper()
	grant, is := candidate.Term()
	if !is || !candidate.IsLeader() {
		t.Fatalf("Term = %+v, %v, IsLeader = %v; want it to lead", grant, is, candidate.IsLeader())
	}
	return grant.Token
}

func doesNotLead(t *testing.T, candidate *election.Candidate) {
	t.Helper()
	if grant, is := candidate.Term(); is || candidate.IsLeader() {
		t.Fatalf("Term = %+v, %v, IsLeader = %v; want it not to lead", grant, is, candidate.IsLeader())
	}
}
