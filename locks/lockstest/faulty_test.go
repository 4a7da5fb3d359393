package lockstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// faulty is a store in memory that can be given one fault. Without one it keeps every promise.
type faulty struct {
	fault     string
	oneWriter bool

	mu         sync.Mutex
	now        time.Time // read once in each call
	rows       map[string]*faultyRow
	ids        int64
	tokens     int64
	remembered map[string]locks.Lock
	txs        []*faultyTx     // the open ones
	waited     map[string]bool // gates that somebody waits for, for a fault
	faultyQueue
	faultyShares
}

// place is where a call reads and writes rows: the table, or what a transaction makes of it.
type place interface {
	row(key string) *faultyRow
	set(key string, r *faultyRow) // nil deletes it
	// closed says that the resource cannot be granted now, since an open transaction has it.
	closed(key string, r *faultyRow) error
}

func (s *faulty) row(key string) *faultyRow { return s.rows[key] }

func (s *faulty) set(key string, r *faultyRow) {
	if r == nil {
		delete(s.rows, key)
		return
	}
	s.rows[key] = r
}

func (s *faulty) closed(key string, r *faultyRow) error { return s.closedTo(nil, key, r) }

type faultyRow struct {
	lock    locks.Lock // its times are the process's
	attempt string
	ended   bool

	released int // of a group: how many shares
}

func (s *faulty) has(fault string) bool { return s.fault == fault }

func (s *faulty) enter() {
	s.mu.Lock()
	s.now = time.Now()
}

// pause is what stands between two statements that should be one.
func (s *faulty) pause() {
	s.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	s.enter()
}

// begin is the look at the context and the arguments.
func (s *faulty) begin(ctx context.Context, valid error) error {
	if err := ctx.Err(); err != nil && !s.has("contexts are ignored") {
		return err
	}
	if s.has("the end of a context is the driver's error") {
		select {
		case <-ctx.Done():
			return errors.New("driver: interrupted")
		case <-time.After(2 * time.Millisecond):
		}
	}
	if s.has("nothing is validated") {
		return nil
	}
	return valid
}

func (s *faulty) live(r *faultyRow) bool {
	if r == nil || s.has("leases end by the back door only") {
		return r != nil && !r.ended
	}
	return !r.ended && s.now.Before(r.lock.ExpiresAt)
}

func (s *faulty) fold(name string) string {
	if s.has("names are folded") {
		return strings.ToLower(strings.TrimRight(name, " "))
	}
	return name
}

func (s *faulty) record(r *faultyRow) locks.Lock {
	l := r.lock
	l.Remaining = l.ExpiresAt.Sub(s.now)
	if s.has("remaining is the TTL") {
		l.Remaining = l.ExpiresAt.Sub(l.AcquiredAt)
	}
	if !s.has("metadata is shared") {
		l.Metadata = bytes.Clone(l.Metadata)
	}
	if s.has("times are local") {
		l.AcquiredAt, l.ExpiresAt = l.AcquiredAt.In(time.FixedZone("", 3600)), l.ExpiresAt.In(time.FixedZone("", 3600))
	}
	if !s.has("times are local") {
		l.AcquiredAt, l.ExpiresAt = l.AcquiredAt.UTC(), l.ExpiresAt.UTC()
	}
	return l
}

func (s *faulty) draw(old *faultyRow) int64 {
	switch {
	case s.has("tokens do not grow"):
		return 7
	case s.has("tokens count in the row"):
		if old == nil {
			return 1
		}
		return old.lock.Token + 1
	case s.has("tokens restart with the table") && len(s.rows) == 0:
		s.tokens = 0
	case s.has("tokens are read, then written"):
		token := s.tokens + 1
		s.pause()
		s.tokens = token
		return token
	case s.has("tokens are too large"):
		return s.tokens + 1<<53
	}
	s.tokens++
	return s.tokens
}

func (s *faulty) Acquire(ctx context.Context, q locks.Request) (locks.Lock, error) {
	valid := q.Validate()
	if s.has("limits are off by one") && q.TTL == locks.MaxTTL {
		valid = &locks.InvalidError{Field: "ttl"}
	}
	if err := s.begin(ctx, valid); err != nil {
		return locks.Lock{}, err
	}
	if s.has("one gate for all resources") {
		if !s.mu.TryLock() {
			return locks.Lock{}, locks.Held(q.Resource, nil)
		}
		time.Sleep(100 * time.Microsecond)
		s.now = time.Now()
	} else {
		s.enter()
	}
	defer s.mu.Unlock()
	if q.Slots != 0 {
		return s.acquireShare(q)
	}
	return s.acquire(q, s)
}

// acquire is the statement of an acquire; the mutex is held.
func (s *faulty) acquire(q locks.Request, in place) (locks.Lock, error) {
	var early int64
	if s.has("tokens are drawn before the row is locked") {
		early = s.draw(nil)
		s.pause()
	}
	key := s.fold(q.Resource)
	r := in.row(key)
	live, remembered := s.live(r), s.remembered[q.Resource+"\n"+q.Attempt]
	if s.has("attempts are remembered for ever") && remembered.Owner == q.Owner {
		return remembered, nil
	}
	if s.has("acquire reads, then writes") {
		s.pause()
	}
	if r != nil && s.has("a retry revives its ended grant") && r.lock.Owner == q.Owner && r.attempt == q.Attempt {
		r.ended = false
		return s.record(r), nil
	}
	if live && (!q.Barge || !s.has("barging takes what is held")) {
		same := s.fold(r.attempt) == s.fold(q.Attempt) && !s.has("attempts are ignored")
		switch own := s.fold(r.lock.Owner) == s.fold(q.Owner); {
		case same && (own || s.has("attempts are known across owners")):
			if t, ok := in.(*faultyTx); ok && !s.has("a grant found again is not the transaction's") {
				if err := in.closed(key, r); err != nil {
					return locks.Lock{}, err
				}
				t.lock(key, false)
			} else if !ok {
				s.found(q)
			}
			return s.record(r), nil
		case !own || s.has("an owner is held by itself"):
			if err := s.ownsShare(q, key); err != nil {
				return locks.Lock{}, err
			}
			holder := s.record(r)
			if s.has("a refused try leaves its mark") {
				r.lock.Metadata = q.Metadata
			}
			if s.has("the holder is not told") {
				return locks.Lock{}, locks.Held(q.Resource, nil)
			}
			return locks.Lock{}, locks.Held(q.Resource, &holder)
		}
	}
	if err := in.closed(key, r); err != nil {
		return locks.Lock{}, err
	}
	if err := s.othersTurn(q, in, r, live); err != nil {
		return locks.Lock{}, err
	}
	l := locks.Lock{Resource: q.Resource, Owner: q.Owner, AcquiredAt: s.now, Metadata: q.Metadata}
	if !s.has("metadata is shared") {
		l.Metadata = bytes.Clone(q.Metadata)
	}
	if s.has("metadata is compacted") && q.Metadata != nil {
		var b bytes.Buffer
		_ = json.Compact(&b, q.Metadata)
		l.Metadata = b.Bytes()
	}
	if s.has("the TTL is in whole seconds") {
		q.TTL = q.TTL.Round(time.Second)
	}
	l.ExpiresAt = l.AcquiredAt.Add(q.TTL)
	switch {
	case r != nil && !s.has("a takeover is a new row"):
		l.ID = r.lock.ID
	case s.has("ids are used again"):
		l.ID = int64(len(s.rows) + 1)
	default:
		s.ids++
		l.ID = s.ids
	}
	if l.Token = early; early == 0 {
		l.Token = s.draw(r)
	}
	if t := s.ticket(q); t != nil && s.has("the lease's time runs from the ticket") {
		l.AcquiredAt = t.waiter.Since
	}
	if r != nil && s.has("a takeover keeps acquired_at") {
		l.AcquiredAt = r.lock.AcquiredAt
	}
	granted := &faultyRow{lock: l, attempt: q.Attempt, ended: r != nil && r.ended && s.has("a takeover does not move the end")}
	in.set(key, granted)
	s.serve(q, in)
	if s.has("attempts are remembered for ever") {
		s.remembered[q.Resource+"\n"+q.Attempt] = s.record(granted)
	}
	return s.record(granted), nil
}

// refuse is [locks.Refuse] with faults.
func (s *faulty) refuse(g locks.Grant, r *faultyRow, call string) error {
	if s.has("late calls are told ok") || r == nil && s.has(call+" of nothing is told ok") {
		return nil
	}
	if r == nil && s.has("the reason of a loss is not told") {
		return locks.ErrLost
	}
	if r == nil {
		return locks.Refuse(g, nil, false)
	}
	live, current := s.live(r), r.lock
	if s.has(call+" ignores the end") && current.Owner == g.Owner {
		live = true
	}
	if s.has(call + " ignores the token") {
		g.Token = locks.AnyToken
	}
	if s.has(call + " ignores the owner") {
		current.Owner = g.Owner
	}
	err := locks.Refuse(g, &current, live)
	switch {
	case s.has("any token is not known") && g.Token == locks.AnyToken:
		return &locks.LostError{Grant: g, Reason: locks.ErrSuperseded}
	case err != nil && s.has("the reason of a loss is not told"):
		return locks.ErrLost
	case err != nil && s.has("whoever lost it is told not held"):
		return &locks.LostError{Grant: g, Reason: locks.ErrNotHeld}
	}
	return err
}

func (s *faulty) Renew(ctx context.Context, g locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if err := s.begin(ctx, errors.Join(g.Validate(), locks.ValidateTTL(ttl))); err != nil {
		return locks.Lock{}, err
	}
	if s.has("one gate for all resources") && !s.mu.TryLock() {
		return locks.Lock{}, locks.Refuse(g, nil, false)
	} else if !s.has("one gate for all resources") {
		s.enter()
	}
	defer s.mu.Unlock()
	return s.renew(g, ttl, s)
}

// renew is the statement of a renew; the mutex is held.
func (s *faulty) renew(g locks.Grant, ttl time.Duration, in place) (locks.Lock, error) {
	key := s.fold(g.Resource)
	r := in.row(key)
	if share := s.current(g, r); share != nil {
		if in != place(s) && s.refuse(g, s.seen(share), "renew") == nil && !s.has("shares are renewed and released in transactions") {
			return locks.Lock{}, errFaultyShare()
		}
		return s.renewShare(g, ttl, share)
	}
	if err := s.refuse(g, r, "renew"); err != nil {
		return locks.Lock{}, err
	}
	if err := s.lockedTo(in, key, "renew"); err != nil {
		return locks.Lock{}, err
	}
	if r == nil && s.has("renew of nothing is told ok") { // an upsert
		r = &faultyRow{lock: locks.Lock{ID: 1000, Resource: g.Resource, Owner: g.Owner, Token: g.Token}}
	}
	if r == nil {
		return locks.Lock{}, nil
	}
	end := s.now.Add(ttl)
	switch {
	case s.has("renew adds to the old end"):
		end = r.lock.ExpiresAt.Add(ttl)
	case s.has("renew never shortens") && end.Before(r.lock.ExpiresAt), s.has("renew does not move the end"):
		end = r.lock.ExpiresAt
	}
	renewed := *r
	renewed.lock.ExpiresAt, renewed.ended = end, false
	in.set(key, &renewed)
	return s.record(&renewed), nil
}

func (s *faulty) Release(ctx context.Context, g locks.Grant) error {
	if err := s.begin(ctx, g.Validate()); err != nil {
		return err
	}
	s.enter()
	defer s.mu.Unlock()
	r := s.rows[s.fold(g.Resource)]
	if share := s.current(g, r); share != nil {
		return s.releaseShare(g, share)
	}
	err := s.refuse(g, r, "release")
	if s.has("release reads, then deletes") {
		s.pause()
		if errors.Is(err, locks.ErrExpired) {
			delete(s.rows, g.Resource)
		}
	}
	if err == nil {
		err = s.lockedTo(s, s.fold(g.Resource), "release")
	}
	if err != nil {
		return err
	}
	s.remove(g.Resource)
	s.freed(g.Resource, "a release")
	return nil
}

// remove is the end of a lease that was live.
func (s *faulty) remove(resource string) {
	if r := s.rows[s.fold(resource)]; r != nil && s.has("a release leaves its row") {
		r.ended = true
		return
	}
	if s.has("a release frees all of its owner") {
		for name, r := range s.rows {
			if r.lock.Owner == s.rows[resource].lock.Owner && name != resource {
				delete(s.rows, name)
			}
		}
	}
	delete(s.rows, s.fold(resource))
}

func (s *faulty) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	if err := s.begin(ctx, locks.ValidateAttempt(resource, owner, attempt)); err != nil {
		return err
	}
	s.enter()
	defer s.mu.Unlock()
	r := s.rows[s.fold(resource)]
	if r.isGroup() {
		return s.releaseShareAttempt(resource, owner, attempt)
	}
	switch {
	case r == nil:
	case !s.live(r) && s.has("release by attempt does not look at the end"):
		return nil
	case !s.live(r) || s.fold(r.lock.Owner) != s.fold(owner):
	case s.fold(r.attempt) == s.fold(attempt), s.has("release by attempt ignores the attempt"):
		if err := s.lockedTo(s, s.fold(resource), "release"); err != nil {
			return err
		}
		s.remove(resource)
		s.freed(resource, "a release by attempt")
		return nil
	}
	return locks.Refuse(locks.Grant{Resource: resource, Owner: owner, Token: locks.AnyToken}, nil, false)
}
