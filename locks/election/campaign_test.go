package election_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Candidates are elected in the order in which they came, and one that resigns comes last.
func TestCandidatesLeadInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		candidates := make([]*election.Candidate, 3)
		for i := range candidates {
			candidates[i] = newCandidate(t, newLocker(t, store), election.Config{Lead: untilEnd})
			start(t, candidates[i])
			synctest.Wait()
		}
		last := int64(0)
		for round := range 10 {
			for i, candidate := range candidates {
				if candidate.IsLeader() != (i == round%3) {
					t.Fatalf("in round %d candidate %d leads: %v", round, i, candidate.IsLeader())
				}
			}
			token := leads(t, candidates[round%3])
			if token <= last {
				t.Errorf("term %d follows term %d", token, last)
			}
			last = token
			if err := candidates[round%3].Resign(t.Context()); err != nil {
				t.Fatalf("Resign: %v", err)
			}
			synctest.Wait()
		}
	})
}

// Resign returns when Lead has returned and the lease is freed, or when its context ends; one that does not lead has nothing
// to resign.
func TestResignWaitsForTheEndOfTheTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var causes []error
		candidate := newCandidate(t, newLocker(t, store), election.Config{Lead: func(ctx context.Context, _ *locks.Lease) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			time.Sleep(3 * time.Second)
			return nil
		}})
		if err := candidate.Resign(t.Context()); err != nil {
			t.Errorf("Resign of one that does not campaign: %v", err)
		}
		c := start(t, candidate)
		synctest.Wait()
		first := leads(t, candidate)

		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, candidate.Resign(ctx), context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Resign took %v under a context of 1 s", took)
		}
		doesNotLead(t, candidate)
		if lock, err := store.Get(t.Context(), resource); err != nil || lock.Token != first {
			t.Errorf("Get = %+v, %v while Lead has not returned", lock, err)
		}
		if err := candidate.Resign(t.Context()); err != nil { // the same term
			t.Errorf("Resign: %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Lead took 3 s to return, Resign %v", took)
		}
		synctest.Wait()
		second := leads(t, candidate)
		if second <= first {
			t.Errorf("it leads term %d after term %d", second, first)
		}
		if len(causes) != 1 || !errors.Is(causes[0], election.ErrResigned) {
			t.Errorf("the causes are %v", causes)
		}
		wantErr(t, c.result(), context.Canceled)
		wantFree(t, store)
	})
}

// A resignation that cannot reach the store leaves no leader, and returns when the release has given up, however often it is
// asked for.
func TestResignWithoutAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		candidate := newCandidate(t, newLocker(t, l), election.Config{Lead: untilEnd})
		start(t, candidate)
		synctest.Wait()
		first := leads(t, candidate)
		l.set(cut)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			wantErr(t, candidate.Resign(ctx), context.DeadlineExceeded)
			cancel()
			doesNotLead(t, candidate)
		}
		if err := candidate.Resign(t.Context()); err != nil {
			t.Errorf("Resign: %v", err)
		}
		doesNotLead(t, candidate)
		l.set(whole)
		pass(time.Minute)
		if second := leads(t, candidate); second <= first {
			t.Errorf("it leads term %d after term %d", second, first)
		}
	})
}

// Lead that returns while it leads ends the term, and the campaign with what it returned.
func TestLeadThatReturnsEndsTheCampaign(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errFault} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			var told events
			var candidate *election.Candidate
			candidate = newCandidate(t, newLocker(t, store), election.Config{
				Report: func(event election.Event) {
					if event.Kind == election.EventEnded {
						doesNotLead(t, candidate)
					}
					told.add(event)
				},
				Lead: func(context.Context, *locks.Lease) error {
					leads(t, candidate)
					return want
				},
			})
			for range 3 { // and may be called again
				if err := candidate.Campaign(t.Context()); !errors.Is(err, want) || err != nil && want == nil {
					t.Errorf("Campaign = %v, want %v", err, want)
				}
				doesNotLead(t, candidate)
				wantFree(t, store)
			}
			ended := told.of(election.EventEnded)
			if len(ended) != 3 || len(told.of(election.EventElected)) != 3 || len(told.all) != 6 {
				t.Fatalf("reported: %+v", told.all)
			}
			for _, event := range ended {
				if event.Cause != nil || !errors.Is(event.Err, want) || event.Grant.Token == 0 {
					t.Errorf("reported: %+v", event)
				}
			}
		})
	}
}

// Lead that returned and was forced out before hears that it may not have been alone.
func TestLeadThatWasForcedOutUnawares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		candidate := newCandidate(t, newLocker(t, store), election.Config{Lead: func(context.Context, *locks.Lease) error {
			store.DeleteRow(resource)
			return nil
		}})
		wantErr(t, candidate.Campaign(t.Context()), locks.ErrLost)
	})
}

// A panic of Lead, and the end of its goroutine, free the lease and leave a candidate that can campaign again.
func TestLeadThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for what, lead := range map[string]func(){"panics": func() { panic("no more") }, "exits": runtime.Goexit} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				var told events
				candidate := newCandidate(t, newLocker(t, store), election.Config{
					Report: told.add,
					Lead:   func(context.Context, *locks.Lease) error { lead(); return nil },
				})
				for range 2 {
					ended := make(chan any)
					go func() {
						defer func() { ended <- recover() }()
						_ = candidate.Campaign(t.Context())
					}()
					if panicked := <-ended; (panicked != nil) != (what == "panics") {
						t.Errorf("Campaign's panic: %v", panicked)
					}
					doesNotLead(t, candidate)
					wantFree(t, store)
				}
				ended := told.of(election.EventEnded)
				if len(ended) != 2 || ended[0].Err == nil || ended[0].Cause != nil {
					t.Errorf("reported: %+v", told.all)
				}
			})
		})
	}
}

// A panic of Report ends nothing.
func TestReportThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		candidate := newCandidate(t, newLocker(t, l), election.Config{Lead: untilEnd, Report: func(election.Event) { panic("no log") }})
		l.set(cut)
		c := start(t, candidate)
		pass(time.Minute)
		l.set(whole)
		pass(time.Minute)
		leads(t, candidate)
		wantErr(t, c.result(), context.Canceled)
	})
}

// A store that is down for long ends no campaign: it is told of, and asked again, not without pause.
func TestCampaignOutlivesFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New()}
		var told events
		candidate := newCandidate(t, newLocker(t, l), election.Config{Lead: untilEnd, Report: told.add})
		l.set(cut)
		start(t, candidate)
		pass(10 * time.Minute)
		failed := told.of(election.EventFailed)
		if len(failed) == 0 || !errors.Is(failed[0].Err, errFault) {
			t.Errorf("reported: %+v", told.all)
		}
		if n := l.count("acquire"); n > 2000 {
			t.Errorf("the store was asked %d times in ten minutes", n)
		}
		doesNotLead(t, candidate)
		l.set(whole)
		pass(5 * time.Second)
		leads(t, candidate)
	})
}

// A queue that is full is no end of a campaign, and is not asked without pause.
func TestCampaignOutlivesAFullQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var told events
		var candidates []*election.Candidate
		var last *link
		for range 3 {
			last = &link{Store: store}
			candidate := newCandidate(t, newLocker(t, last, locks.WithMaxWaiters(1)), election.Config{Lead: untilEnd, Report: told.add})
			start(t, candidate)
			candidates = append(candidates, candidate)
			synctest.Wait()
		}
		pass(time.Minute)
		failed := told.of(election.EventFailed)
		if len(failed) == 0 || len(failed) > 200 || !errors.Is(failed[0].Err, locks.ErrQueueFull) {
			t.Errorf("reported %d times: %+v", len(failed), failed[:min(1, len(failed))])
		}
		for _, candidate := range candidates[:2] {
			leads(t, candidate)
			if err := candidate.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
		}
	})
}

// A candidate campaigns once at a time.
func TestOneCampaignAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		candidate := newCandidate(t, newLocker(t, memstore.New()), election.Config{Lead: untilEnd})
		c := start(t, candidate)
		synctest.Wait()
		wantErr(t, candidate.Campaign(t.Context()), locks.ErrInvalid)
		leads(t, candidate)
		wantErr(t, c.result(), context.Canceled)
	})
}

// A locker's longest time ends terms, and the others have their turn.
func TestTheLongestTimeEndsATerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var causes []error
		lead := func(ctx context.Context, _ *locks.Lease) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return nil
		}
		var candidates [2]*election.Candidate
		for i := range candidates {
			candidates[i] = newCandidate(t, newLocker(t, store, locks.WithMaxHold(time.Minute)), election.Config{Lead: lead})
			start(t, candidates[i])
			synctest.Wait()
		}
		pass(30 * time.Second)
		for i := range 6 {
			leads(t, candidates[i%2])
			pass(time.Minute)
		}
		for _, cause := range causes {
			wantErr(t, cause, locks.ErrMaxHold)
		}
	})
}
