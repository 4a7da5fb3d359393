package lockstest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// faultyTx is a transaction, or a savepoint of one, on a faulty store. What it changes is its own until the commit.
type faultyTx struct {
	s     *faulty
	root  *faultyTx // itself, but of a savepoint
	began time.Time

	over, aborted bool
	faultyState
	ends []func(locks.Outcome)

	before     faultyState // of a savepoint: what a rollback goes back to
	endsBefore int
}

// faultyState is what a transaction has changed and locked.
type faultyState struct {
	rows   map[string]*faultyRow // nil: deleted
	held   []faultyLock
	served []locks.Request // whose tickets go with the commit
}

type faultyLock struct {
	key   string
	guard bool // and no change
	share int64
}

func (f faultyState) clone() faultyState {
	return faultyState{maps.Clone(f.rows), slices.Clone(f.held), slices.Clone(f.served)}
}

// open begins a transaction.
func (s *faulty) open() *faultyTx {
	s.enter()
	defer s.mu.Unlock()
	t := s.overlay()
	s.txs = append(s.txs, t)
	return t
}

// overlay is a transaction that nobody else knows of.
func (s *faulty) overlay() *faultyTx {
	t := &faultyTx{s: s, began: s.now, faultyState: faultyState{rows: map[string]*faultyRow{}}}
	t.root = t
	return t
}

// closedTo says that a transaction that is not t has locked the resource.
func (s *faulty) closedTo(t *faultyTx, key string, r *faultyRow) error {
	for _, other := range s.txs {
		for _, lock := range other.held {
			if other == t || s.has("a transaction has no gate") {
				continue
			}
			if s.oneWriter && !s.has("others are told that it is held") {
				return locks.ErrBusy
			}
			if lock.key != key && !s.has("transactions share one gate") {
				continue
			}
			if s.has("a guard ends with the lease") && lock.guard && !s.live(r) {
				continue
			}
			return locks.Held(key, nil)
		}
	}
	return nil
}

// lockedTo says that a call cannot have the row, since an open transaction that is not the place has it.
func (s *faulty) lockedTo(in place, key, call string) error {
	t, _ := in.(*faultyTx)
	for _, other := range s.txs {
		for _, lock := range other.held {
			switch {
			case t != nil && other == t.root || lock.guard && s.has("a guarded lease can be ended by "+call):
			case s.oneWriter && !s.has("a renewal waits for nobody"):
				return locks.ErrBusy
			case lock.key != key:
			case !lock.guard && !s.has("a renewal waits for nobody"):
				return locks.ErrBusy
			case lock.guard && (call == "release" || call == "force release" || call == "renew" && s.has("a guard blocks its holder") ||
				call == "guard" && s.has("one guard at a time")):
				return locks.ErrGuarded
			}
		}
	}
	return nil
}

func (t *faultyTx) row(key string) *faultyRow {
	if r, changed := t.root.rows[key]; changed {
		return r
	}
	return t.s.rows[key]
}

func (t *faultyTx) set(key string, r *faultyRow) {
	if t.s.has("changes in a transaction are seen at once") {
		t.s.set(key, r)
	} else {
		t.root.rows[key] = r
	}
	t.lock(key, false)
}

func (t *faultyTx) lock(key string, guard bool) {
	t.root.held = append(t.root.held, faultyLock{key: key, guard: guard})
}

func (t *faultyTx) closed(key string, r *faultyRow) error {
	if slices.Contains(t.root.held, faultyLock{key: key, guard: true}) && !t.s.has("the guarding transaction may acquire") {
		return locks.ErrGuarded
	}
	return t.s.closedTo(t.root, key, r)
}

// call is the look at the context, the arguments and the transaction; without an error the mutex is held.
func (t *faultyTx) call(ctx context.Context, valid error) error {
	if err := t.s.begin(ctx, valid); err != nil {
		return err
	}
	t.s.enter()
	if t.root.aborted || (t.over || t.root.over) && !t.s.has("a transaction that is over goes on") {
		t.s.mu.Unlock()
		return &locks.InvalidError{Field: "transaction", Reason: "is over"}
	}
	if t.s.has("a transaction's time stands still") {
		t.s.now = t.root.began
	}
	return nil
}

func (t *faultyTx) Acquire(ctx context.Context, q locks.Request) (locks.Lock, error) {
	valid := q.ValidateExclusive()
	if t.s.has("a transaction takes a share for a lease") {
		q.Slots, valid = 0, q.Validate()
	}
	if err := t.call(ctx, valid); err != nil {
		return locks.Lock{}, err
	}
	defer t.s.mu.Unlock()
	lock, err := t.s.acquire(q, t)
	if errors.Is(err, locks.ErrHeld) {
		t.refused(t.s.fold(q.Resource))
	}
	return lock, err
}

// refused is what faults do to a transaction in which something was refused.
func (t *faultyTx) refused(key string) {
	if t.s.has("a refused call keeps its gate") {
		t.lock(key, false)
	}
	if t.s.has("a refused call aborts the transaction") {
		t.root.aborted = true
	}
}

func (t *faultyTx) Renew(ctx context.Context, g locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if err := t.call(ctx, errors.Join(g.ValidateExact(), locks.ValidateTTL(ttl))); err != nil {
		return locks.Lock{}, err
	}
	defer t.s.mu.Unlock()
	lock, err := t.s.renew(g, ttl, t)
	if err != nil {
		t.refused(t.s.fold(g.Resource))
	}
	return lock, err
}

func (t *faultyTx) Release(ctx context.Context, g locks.Grant) error {
	if err := t.call(ctx, g.ValidateExact()); err != nil {
		return err
	}
	defer t.s.mu.Unlock()
	key := t.s.fold(g.Resource)
	if share := t.s.current(g, t.row(key)); share != nil {
		if err := t.s.refuse(g, t.s.seen(share), "release"); err != nil {
			return err
		}
		if t.s.has("shares are renewed and released in transactions") {
			return t.s.releaseShare(g, share)
		}
		return errFaultyShare()
	}
	err := t.s.refuse(g, t.row(key), "release")
	if err == nil {
		err = t.s.lockedTo(t, key, "release")
	}
	switch {
	case err != nil:
		t.refused(key)
		return err
	case t.s.has("a release in a transaction marks the row"):
		t.lock(key, false)
		t.root.ends = append(t.root.ends, func(outcome locks.Outcome) {
			if outcome == locks.Committed {
				t.s.mu.Lock()
				delete(t.s.rows, key)
				t.s.mu.Unlock()
			}
		})
		return nil
	}
	t.set(key, nil)
	return nil
}

func (t *faultyTx) Guard(ctx context.Context, g locks.Grant) error {
	valid := g.ValidateExact()
	if t.s.has("any token guards") {
		valid = g.Validate()
	}
	if err := t.call(ctx, valid); err != nil {
		return err
	}
	defer t.s.mu.Unlock()
	key := t.s.fold(g.Resource)
	r := t.row(key)
	if t.s.has("a guard does not see its own transaction") {
		r = t.s.rows[key]
	}
	if share := t.s.current(g, r); share != nil {
		return t.guardShare(g, share)
	}
	err := t.s.refuse(g, r, "guard")
	if t.s.has("a guard looks, then takes its gate") {
		t.s.pause()
	}
	if err == nil {
		err = t.s.lockedTo(t, key, "guard")
	}
	if err != nil {
		t.refused(key)
		return err
	}
	if !t.s.has("a guard looks and no more") {
		t.lock(key, true)
	}
	return nil
}
