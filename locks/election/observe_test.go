package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// seen is what an observer was told of.
type seen struct {
	mu      sync.Mutex
	leaders []election.Leader
	errs    []error
	at      []time.Time
}

func (s *seen) add(leader election.Leader, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaders, s.errs, s.at = append(s.leaders, leader), append(s.errs, err), append(s.at, time.Now())
}

func (s *seen) last() (election.Leader, time.Time, error) {
	i := len(s.leaders) - 1
	return s.leaders[i], s.at[i], s.errs[i]
}

// observe observes until the test ends.
func observe(t *testing.T, locker *locks.Locker, options ...election.ObserveOption) *seen {
	t.Helper()
	s := new(seen)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for leader, err := range election.Observe(ctx, locker, resource, options...) {
			s.add(leader, err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return s
}

// An observer is told who leads at once, and of each change within a poll, and of nothing else.
func TestObserveTellsOfChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		s := observe(t, locker)
		if len(s.leaders) != 1 || s.leaders[0].Token != 0 || s.leaders[0].Owner != "" || s.errs[0] != nil {
			t.Fatalf("told %+v, %v; want nobody", s.leaders, s.errs)
		}
		metadata := json.RawMessage(`{"address":"10.0.0.7:8080"}`)
		candidate := newCandidate(t, locker, election.Config{Lead: untilEnd, Name: "host-1", Metadata: metadata})
		c := start(t, candidate)
		since := time.Now()
		pass(election.DefaultMaxPoll)
		grant, _ := candidate.Term()
		leader, _, err := s.last()
		if len(s.leaders) != 2 || err != nil || leader.Owner != grant.Owner || leader.Token != grant.Token || !leader.Since.Equal(since) || string(leader.Metadata) != string(metadata) {
			t.Fatalf("told %+v, %v; want the leader %+v", s.leaders, s.errs, grant)
		}
		pass(time.Hour) // hundreds of renewals
		if len(s.leaders) != 2 {
			t.Errorf("told %+v though the leader has not changed", s.leaders)
		}
		for n := 3; n < 10; n++ {
			if err := candidate.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			pass(election.DefaultMaxPoll)
			if len(s.leaders) != n || s.leaders[n-1].Token <= s.leaders[n-2].Token {
				t.Errorf("told %+v after the %d. resignation", s.leaders, n-2)
			}
		}
		wantErr(t, c.result(), context.Canceled)
		pass(election.DefaultMaxPoll)
		if leader, _, err := s.last(); leader.Token != 0 || err != nil {
			t.Errorf("told %+v, %v when nobody leads", leader, err)
		}
	})
}

// An observer is there when the lease of a leader that died ends, though its pauses are long.
func TestObserveLooksWhenALeaseEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		dead := newLocker(t, store, locks.WithoutRenewal())
		if _, err := dead.TryAcquire(t.Context(), resource, locks.WithTTL(30*time.Second)); err != nil {
			t.Fatal(err)
		}
		ends := time.Now().Add(30 * time.Second)
		s := observe(t, newLocker(t, store), election.WithPoll(time.Second, time.Hour))
		pass(time.Hour)
		leader, at, err := s.last()
		if len(s.leaders) != 2 || leader.Token != 0 || err != nil || at.Before(ends) || at.After(ends.Add(time.Second)) {
			t.Errorf("told %+v, %v at %v; want nobody at %v or up to a second later", s.leaders, s.errs, s.at, ends)
		}
	})
}

// An observer does not ask without pause, whoever leads, and whether the store answers or not.
func TestObserveAsksSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		observe(t, newLocker(t, l))
		candidate := newCandidate(t, newLocker(t, l.Store), election.Config{Lead: untilEnd, TTL: election.MinTTL})
		const most = 1200 // each pause is 1 s to 2 s, and a term of 1 s is looked after when it can end
		for _, phase := range []struct {
			what  string
			begin func()
		}{
			{"nobody leads", func() {}},
			{"somebody leads", func() { start(t, candidate) }},
			{"the store is down", func() { l.set(cut) }},
		} {
			phase.begin()
			before := l.count("get")
			pass(10 * time.Minute)
			if n := l.count("get") - before; n < 280 || n > most {
				t.Errorf("%s: asked %d times in ten minutes", phase.what, n)
			}
		}
	})
}

// A fault is told once, and who leads when the store answers again, changed or not.
func TestObserveTellsOfFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		candidate := newCandidate(t, newLocker(t, l.Store), election.Config{Lead: untilEnd})
		start(t, candidate)
		synctest.Wait()
		s := observe(t, newLocker(t, l))
		for range 3 {
			l.set(cut)
			pass(time.Minute)
			l.set(whole)
			pass(time.Minute)
		}
		if len(s.leaders) != 7 {
			t.Fatalf("told %+v, %v", s.leaders, s.errs)
		}
		for i, leader := range s.leaders {
			if i%2 == 0 && (leader.Token != leads(t, candidate) || s.errs[i] != nil) || i%2 == 1 && (leader.Token != 0 || !errors.Is(s.errs[i], errFault)) {
				t.Errorf("the %d. was told %+v, %v", i, leader, s.errs[i])
			}
		}
	})
}

// gettingStore says something else of who leads.
type gettingStore struct {
	*memstore.Store
	get func() (locks.Lock, error)
}

func (s gettingStore) Get(context.Context, string) (locks.Lock, error) { return s.get() }

// A lease that is just ending is no reason to ask without pause.
func TestObserveAsksSeldomForALeaseThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		observe(t, newLocker(t, gettingStore{memstore.New(), func() (locks.Lock, error) {
			gets.Add(1)
			return locks.Lock{Resource: resource, Owner: "host-1", Token: 1, Remaining: 0}, nil
		}}))
		pass(time.Minute)
		if n := gets.Load(); n > 1201 { // each pause is 50 ms to 100 ms
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

// What the store answers when the context has ended is yielded to nobody, and nor is the leader that a store names beside
// "nobody".
func TestObserveYieldsNothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []error{nil, locks.ErrNotFound, errFault} {
			ctx, cancel := context.WithCancel(t.Context())
			locker := newLocker(t, gettingStore{memstore.New(), func() (locks.Lock, error) {
				cancel()
				return locks.Lock{Resource: resource, Token: 1}, answer
			}})
			for leader, err := range election.Observe(ctx, locker, resource) {
				t.Errorf("told %+v, %v", leader, err)
			}
		}
		locker := newLocker(t, gettingStore{memstore.New(), func() (locks.Lock, error) {
			return locks.Lock{Resource: resource, Token: 1}, locks.ErrNotFound
		}})
		if s := observe(t, locker); len(s.leaders) != 1 || s.leaders[0].Token != 0 {
			t.Errorf("told %+v, want nobody", s.leaders)
		}
	})
}

// The end of its context, the end of the loop and a bad argument end an observation.
func TestObserveEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		locker := newLocker(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		for range election.Observe(ctx, locker, resource) {
			n++
		}
		if n != 1 || ctx.Err() == nil {
			t.Errorf("told %d times until the context ended with %v", n, ctx.Err())
		}
		for range election.Observe(ctx, locker, resource) {
			t.Error("told under a context that has ended")
		}
		for range election.Observe(t.Context(), locker, resource) {
			break
		}
		l.set(cut)
		for range election.Observe(t.Context(), locker, resource) {
			break
		}
		for what, sequence := range map[string]func(func(election.Leader, error) bool){
			"no resource":           election.Observe(t.Context(), locker, ""),
			"no locker":             election.Observe(t.Context(), nil, resource),
			"no option":             election.Observe(t.Context(), locker, resource, nil),
			"a poll that is a slip": election.Observe(t.Context(), locker, resource, election.WithPoll(5, time.Second)),
			"a poll upside down":    election.Observe(t.Context(), locker, resource, election.WithPoll(2*time.Second, time.Second)),
			"a poll too long":       election.Observe(t.Context(), locker, resource, election.WithPoll(time.Second, locks.MaxTTL+1)),
		} {
			n := 0
			for leader, err := range sequence {
				n++
				if !errors.Is(err, locks.ErrInvalid) || leader.Token != 0 {
					t.Errorf("%s: told %+v, %v", what, leader, err)
				}
			}
			if n != 1 {
				t.Errorf("%s: told %d times", what, n)
			}
		}
	})
}

// A resource that others share is held, and led by nobody.
func TestObserveTakesNoGroupForALeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		locker := newLocker(t, store)
		if _, err := locker.Acquire(t.Context(), resource, locks.WithShared()); err != nil {
			t.Fatal(err)
		}
		s := observe(t, locker)
		if leader, _, err := s.last(); err != nil || leader.Token != 0 || leader.Owner != "" {
			t.Errorf("%+v, %v, want nobody", leader, err)
		}
	})
}
