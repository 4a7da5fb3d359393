package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// Close ends a campaign in each of its states: Lead returns first, then the lease is freed, then Campaign returns.
func TestCloseEndsACampaign(t *testing.T) {
	t.Parallel()
	for what, prepare := range map[string]func(t *testing.T, l *link, candidate *election.Candidate){
		"leads":   func(t *testing.T, _ *link, candidate *election.Candidate) { leads(t, candidate) },
		"waits":   nil,
		"pauses":  func(_ *testing.T, l *link, _ *election.Candidate) { l.set(cut); pass(time.Minute) },
		"resigns": func(_ *testing.T, _ *link, candidate *election.Candidate) { go candidate.Resign(context.Background()) },
		"is lost": func(_ *testing.T, l *link, _ *election.Candidate) { l.DeleteRow(resource); pass(9 * time.Second) },
		"returned": func(_ *testing.T, _ *link, candidate *election.Candidate) {
			_ = candidate.Resign(context.Background())
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &link{Store: memstore.New()}
				locker := newLocker(t, l)
				runs := false
				candidate := newCandidate(t, locker, election.Config{Lead: func(ctx context.Context, _ *locks.Lease) error {
					runs = true
					<-ctx.Done()
					time.Sleep(5 * time.Second)
					runs = false
					return nil
				}})
				if what == "waits" || what == "pauses" {
					other := newCandidate(t, newLocker(t, l.Store), election.Config{Lead: untilEnd})
					start(t, other)
					synctest.Wait()
				}
				c := start(t, candidate)
				synctest.Wait()
				if prepare != nil {
					prepare(t, l, candidate)
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := locker.Close(ctx); err != nil {
					t.Errorf("Close: %v", err)
				}
				if runs {
					t.Error("Close has returned before Lead")
				}
				doesNotLead(t, candidate)
				select {
				case <-c.done:
				case <-time.After(time.Second):
					t.Error("Campaign runs a second after Close")
				}
				wantErr(t, c.result(), locks.ErrClosed)
				wantErr(t, candidate.Campaign(t.Context()), locks.ErrClosed)
			})
		})
	}
}

// The end of its context ends a campaign in order, whatever it is at.
func TestTheContextEndsACampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		candidate := newCandidate(t, newLocker(t, store), election.Config{Lead: func(ctx context.Context, term *locks.Lease) error {
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), errFault)
			time.Sleep(5 * time.Second)
			if lock, err := store.Get(t.Context(), resource); err != nil || lock.Token != term.Token() {
				t.Errorf("Get = %+v, %v while Lead has not returned", lock, err)
			}
			return nil
		}})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errFault) })
		wantErr(t, candidate.Campaign(ctx), context.Canceled)
		wantFree(t, store)
		wantErr(t, candidate.Campaign(ctx), context.Canceled)

		other := newCandidate(t, newLocker(t, store), election.Config{Lead: untilEnd})
		start(t, other)
		synctest.Wait()
		waits, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		wantErr(t, candidate.Campaign(waits), context.DeadlineExceeded)
		leads(t, other)
	})
}

// What ends between the grant and Lead has no term: Lead does not run, and the lease is freed.
func TestNoTermBeginsAfterItsEnd(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		end  func(l *link, locker *locks.Locker, cancel context.CancelFunc)
		want error
	}{
		"the campaign's context ends": {func(_ *link, _ *locks.Locker, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"the locker closes": {func(_ *link, locker *locks.Locker, _ context.CancelFunc) {
			go locker.Close(context.Background())
		}, locks.ErrClosed},
		"the process sleeps, and another one leads": {func(l *link, _ *locks.Locker, cancel context.CancelFunc) {
			l.setRenewing(cut)
			time.Sleep(40 * time.Second)
			_, _ = l.Store.Acquire(context.Background(), locks.Request{
				Resource: resource, Owner: "other", Attempt: "other", TTL: time.Hour,
			})
			time.AfterFunc(time.Minute, cancel)
		}, context.Canceled},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &link{Store: memstore.New()}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var locker *locks.Locker
				acquired := 0
				locker = newLocker(t, l, locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
					if event.Kind != locks.EventAcquired {
						return
					}
					if acquired++; acquired == 1 {
						test.end(l, locker, cancel)
						time.Sleep(time.Second) // until it is told
					}
				})))
				var told events
				candidate := newCandidate(t, locker, election.Config{Report: told.add, Lead: func(context.Context, *locks.Lease) error {
					t.Error("Lead runs")
					return nil
				}})
				wantErr(t, candidate.Campaign(ctx), test.want)
				doesNotLead(t, candidate)
				if lock, err := l.Store.Get(t.Context(), resource); err == nil && lock.Owner != "other" {
					t.Errorf("held by %q", lock.Owner)
				}
				if acquired != 1 || len(told.of(election.EventElected)) != 0 {
					t.Errorf("acquired %d times, reported: %+v", acquired, told.all)
				}
			})
		})
	}
}

// A Lead that releases its term must not, and has had enough: its campaign does not begin another term, again and again.
func TestLeadThatReleasesItsTerm(t *testing.T) {
	t.Parallel()
	for name, lead := range map[string]func(ctx context.Context, term *locks.Lease) error{
		"on its way out": func(ctx context.Context, term *locks.Lease) error {
			defer func() { _ = term.Release(ctx) }()
			return errWork
		},
		"and waits for the end": func(ctx context.Context, term *locks.Lease) error {
			_ = term.Release(context.Background())
			<-ctx.Done()
			return errWork
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				terms := 0
				candidate := newCandidate(t, newLocker(t, memstore.New()), election.Config{Lead: func(ctx context.Context, term *locks.Lease) error {
					if terms++; terms > 3 {
						panic("again and again")
					}
					return lead(ctx, term)
				}})
				if err := candidate.Campaign(t.Context()); !errors.Is(err, errWork) || terms != 1 {
					t.Errorf("%v after %d terms, want Lead's error after one", err, terms)
				}
			})
		})
	}
}

var errWork = errors.New("cannot be done here")
