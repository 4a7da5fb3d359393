package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A leader whose renewals fail stops so early that its whole stop limit, and a tenth of the TTL, are left of its lease, and
// is no leader from then on.
func TestALeaderThatCannotRenewStopsInTime(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{0, time.Millisecond, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 30 * time.Second
			l := &link{Store: memstore.New()}
			var candidate *election.Candidate
			var left []time.Duration
			candidate = newCandidate(t, newLocker(t, l), election.Config{
				StopLimit: limit,
				Lead: func(ctx context.Context, term *locks.Lease) error {
					<-ctx.Done()
					doesNotLead(t, candidate)
					if len(left) > 0 { // it campaigns again, and is stopped by the test
						return ctx.Err()
					}
					wantErr(t, context.Cause(ctx), locks.ErrExpired, errFault)
					lock, err := l.Store.Get(t.Context(), resource)
					if err != nil || lock.Token != term.Token() {
						t.Errorf("stopped when the store said %+v, %v", lock, err)
					}
					left = append(left, lock.Remaining)
					return ctx.Err()
				},
			})
			c := start(t, candidate)
			l.setRenewing(cut)
			pass(ttl)
			wantErr(t, c.result(), context.Canceled)
			if limit == 0 {
				limit = ttl / 6
			}
			if len(left) == 0 || left[0] != limit+ttl/10 {
				t.Errorf("with a stop limit of %v its lease had %v left when it was to stop", limit, left)
			}
		})
	}
}

// A leader that is well does not lose itself, at the tightest configuration there is.
func TestAHealthyLeaderKeepsItsTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &link{Store: memstore.New(), latency: 50 * time.Millisecond}
		candidate := newCandidate(t, newLocker(t, l), election.Config{
			Lead: untilEnd, TTL: election.MinTTL, StopLimit: election.MinTTL / 2,
		})
		c := start(t, candidate)
		pass(time.Second)
		token := leads(t, candidate)
		for l.count("renew") < 200 {
			pass(time.Second)
		}
		if now := leads(t, candidate); now != token {
			t.Errorf("it leads term %d after 200 renewals, and led %d", now, token)
		}
		wantErr(t, c.result(), context.Canceled)
		wantFree(t, l.Store)
	})
}

// A store whose calls fail for half of the time for which a term is trusted, or hang for a quarter, ends no term.
func TestALeaderOutlivesASilentStore(t *testing.T) {
	t.Parallel()
	const window = 24 * time.Second // what is left of 30 s without a stop limit of 3 s and the tenth
	for how, silence := range map[state]time.Duration{cut: window / 2, hung: window / 4} {
		synctest.Test(t, func(t *testing.T) {
			l := &link{Store: memstore.New()}
			candidate := newCandidate(t, newLocker(t, l, locks.WithCallLimit(time.Hour)), election.Config{
				Lead: untilEnd, StopLimit: 3 * time.Second,
			})
			start(t, candidate)
			synctest.Wait()
			token := leads(t, candidate)
			for range 100 {
				l.setRenewing(how)
				pass(silence)
				l.setRenewing(whole)
				pass(window/3 + window/8 + rand.N(window)) // until a call that hangs is given up, and the pause after that is over
				if now := leads(t, candidate); now != token {
					t.Fatalf("it leads term %d, and led %d", now, token)
				}
			}
		})
	}
}

// A former leader does not think that it leads still, and cannot touch the one that followed.
func TestAFormerLeaderHarmsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		old := &link{Store: store}
		var former *locks.Lease
		first := newCandidate(t, newLocker(t, old), election.Config{Lead: func(ctx context.Context, term *locks.Lease) error {
			former = term
			return untilEnd(ctx, term)
		}})
		start(t, first)
		synctest.Wait()
		leads(t, first)
		second := newCandidate(t, newLocker(t, store), election.Config{Lead: untilEnd})
		start(t, second)
		synctest.Wait()
		doesNotLead(t, second)
		old.set(cut)
		pass(time.Minute)
		doesNotLead(t, first)
		leads(t, second)
		old.set(whole)
		before, err := store.Get(t.Context(), resource)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, former.Renew(t.Context()), locks.ErrLost)
		wantErr(t, former.Release(t.Context()), locks.ErrLost)
		if after, err := store.Get(t.Context(), resource); err != nil || after.Grant() != before.Grant() || !after.ExpiresAt.Equal(before.ExpiresAt) {
			t.Errorf("the lease of the leader is %+v, %v; it was %+v", after, err, before)
		}
		leads(t, second)
	})
}

// The term of one candidate is not ended by what is left of its earlier terms: late renewals, releases and resignations, and
// an acquire that was given up and is carried out late.
func TestAnOldTermDoesNotTouchANewOneOfTheSameCandidate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		late := make(chan struct{})
		var acquires atomic.Int32
		hooked := &hangingStore{Store: store, hang: func() {
			if acquires.Add(1) <= 3 { // until the acquire gives up
				<-late
			}
		}}
		var terms []*locks.Lease
		candidate := newCandidate(t, newLocker(t, hooked), election.Config{
			Name: "host-1",
			Lead: func(ctx context.Context, term *locks.Lease) error {
				terms = append(terms, term)
				return untilEnd(ctx, term)
			},
		})
		start(t, candidate)
		pass(time.Minute)
		first := leads(t, candidate)
		close(late)
		pass(time.Minute)
		if now := leads(t, candidate); now != first {
			t.Errorf("it leads term %d after old requests were carried out, and led %d", now, first)
		}
		if err := candidate.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second := leads(t, candidate)
		if second <= first {
			t.Errorf("it leads term %d after term %d", second, first)
		}
		old := terms[0]
		wantErr(t, old.Renew(t.Context()), locks.ErrReleased)
		_, err := store.Renew(t.Context(), old.Grant(), time.Minute)
		wantErr(t, err, locks.ErrLost)
		wantErr(t, store.Release(t.Context(), old.Grant()), locks.ErrLost)
		pass(time.Minute)
		if now := leads(t, candidate); now != second || len(terms) != 2 {
			t.Errorf("it leads term %d, the %d., after the old one was to end, and led %d", now, len(terms), second)
		}
	})
}

// hangingStore hangs in acquires before they are carried out, whatever their context says.
type hangingStore struct {
	*memstore.Store
	hang func()
}

func (s *hangingStore) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	s.hang()
	return s.Store.Acquire(context.WithoutCancel(ctx), request)
}

// A Lead that stays for longer than it may is reported. Its own candidate does not campaign meanwhile, and says that it does not
// lead; a term that its candidate ends stays leased until it has returned.
func TestALeadThatOverstaysIsReported(t *testing.T) {
	t.Parallel()
	for what, lost := range map[string]bool{"lost": true, "resigned": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				old := &link{Store: store}
				var told events
				stay := make(chan struct{})
				terms := 0
				first := newCandidate(t, newLocker(t, old), election.Config{
					StopLimit: 5 * time.Second, Report: told.add,
					Lead: func(ctx context.Context, _ *locks.Lease) error {
						if terms++; terms > 1 {
							return untilEnd(ctx, nil)
						}
						<-stay
						return nil
					},
				})
				start(t, first)
				synctest.Wait()
				token := leads(t, first)
				second := newCandidate(t, newLocker(t, store), election.Config{Lead: untilEnd})
				start(t, second)
				if lost {
					old.set(cut)
					pass(22 * time.Second) // the context has ended
				} else {
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					wantErr(t, first.Resign(ctx), context.Canceled)
				}
				synctest.Wait()
				doesNotLead(t, first)
				pass(4 * time.Second) // it has 5 s, of which the loss was at most one ago
				if all := told.of(election.EventOverstayed); len(all) != 0 {
					t.Errorf("reported too early: %+v", all)
				}
				pass(time.Second + time.Millisecond)
				all := told.of(election.EventOverstayed)
				cause := map[bool]error{true: locks.ErrLost, false: election.ErrResigned}[lost]
				if len(all) != 1 || all[0].Grant.Token != token || !errors.Is(all[0].Cause, cause) {
					t.Errorf("reported as overstayed: %+v", all)
				}
				pass(time.Minute)
				old.set(whole)
				pass(time.Minute)
				doesNotLead(t, first)
				if lost {
					leads(t, second)
				} else {
					doesNotLead(t, second)
				}
				if terms != 1 {
					t.Errorf("there were %d terms of a candidate whose first Lead has not returned", terms)
				}
				close(stay)
				synctest.Wait()
				leads(t, second)
				if all := told.of(election.EventEnded); len(all) != 1 || !errors.Is(all[0].Cause, cause) {
					t.Errorf("reported as ended: %+v", all)
				}
			})
		})
	}
}

// A leader that somebody else ends hears of it at its next renewal, and campaigns again.
func TestALeaderThatIsForcedOutCampaignsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var told events
		candidate := newCandidate(t, newLocker(t, store), election.Config{Lead: untilEnd, Report: told.add})
		start(t, candidate)
		synctest.Wait()
		first := leads(t, candidate)
		store.DeleteRow(resource)
		const interval = (30 - 5 - 3) * time.Second / 3
		pass(interval)
		synctest.Wait()
		if second := leads(t, candidate); second <= first {
			t.Errorf("it leads term %d after term %d", second, first)
		}
		if all := told.of(election.EventEnded); len(all) != 1 || !errors.Is(all[0].Cause, locks.ErrNotHeld) || !errors.Is(all[0].Err, context.Canceled) {
			t.Errorf("reported as ended: %+v", all)
		}
	})
}

// Lead sees a loss before its context was told of it, and returns: the campaign goes on all the same.
func TestALossThatLeadSeesFirstIsNoEndOfTheCampaign(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		terms := 0
		candidate := newCandidate(t, newLocker(t, store), election.Config{Lead: func(ctx context.Context, term *locks.Lease) error {
			if terms++; terms > 1 {
				return untilEnd(ctx, term)
			}
			store.Expire(resource)
			return term.Renew(ctx)
		}})
		c := start(t, candidate)
		synctest.Wait()
		leads(t, candidate)
		wantErr(t, c.result(), context.Canceled)
	})
}

// The name and the metadata of a term are the candidate's, and no two owners are the same.
func TestWhatATermIsMadeOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		metadata := json.RawMessage(`{"address":"10.0.0.7:8080"}`)
		type key struct{}
		var mu sync.Mutex
		owners := make(map[string]int)
		config := election.Config{
			Name: "host-1", Metadata: slices.Clone(metadata), TTL: time.Minute,
			Lead: func(ctx context.Context, term *locks.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				owners[term.Owner()]++
				lock := term.Lock()
				if ctx.Value(key{}) != "value" || !strings.HasPrefix(lock.Owner, "host-1/") || string(lock.Metadata) != string(metadata) || lock.Remaining != time.Minute {
					t.Errorf("the term is %+v, the value %v", lock, ctx.Value(key{}))
				}
				return nil
			},
		}
		locker := newLocker(t, store, locks.WithTTL(time.Second), locks.WithMargin(500*time.Millisecond), locks.WithRenewalInterval(100*time.Millisecond))
		var campaigns sync.WaitGroup
		for range 10 {
			candidate := newCandidate(t, locker, config)
			clear(config.Metadata)
			config.Metadata = slices.Clone(metadata)
			campaigns.Go(func() {
				for range 2 {
					if err := candidate.Campaign(context.WithValue(t.Context(), key{}, "value")); err != nil {
						t.Errorf("Campaign: %v", err)
					}
				}
			})
		}
		campaigns.Wait()
		if len(owners) != 20 {
			t.Errorf("20 terms have the owners %v", owners)
		}
	})
}
