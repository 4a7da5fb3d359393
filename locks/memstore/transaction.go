package memstore

import "github.com/rowlease/rowlease/locks"

// transaction is what is not committed yet: a stack of levels, the transaction itself and the savepoints that are open
// in it. As in a database, what is done goes into the innermost of them. The store's mutex protects it.
type transaction struct {
	levels []*level
}

// level is a transaction or a savepoint in it.
type level struct {
	changes map[string]*row     // by resource; nil where the row is deleted
	guards  map[string]struct{} // by resource
	// guardedShares are by their tokens.
	guardedShares map[int64]struct{}
	claims        map[string]struct{} // by resource: what an acquire has found again
	served        []waits             // whose tickets its grants took
	onEnd         []func(locks.Outcome)

	into    *level        // where a savepoint was released into
	outcome locks.Outcome // once it has ended otherwise
}

func newLevel() *level {
	return &level{
		changes: make(map[string]*row), guards: make(map[string]struct{}), guardedShares: make(map[int64]struct{}),
		claims: make(map[string]struct{}),
	}
}

func (l *level) open() bool { return l.into == nil && l.outcome == 0 }

func (t *transaction) top() *level { return t.levels[len(t.levels)-1] }

// changed returns the resource's row as the transaction has changed it, and whether it has.
func (t *transaction) changed(resource string) (*row, bool) {
	if t == nil {
		return nil, false
	}
	for i := len(t.levels) - 1; i >= 0; i-- {
		if r, ok := t.levels[i].changes[resource]; ok {
			return r, true
		}
	}
	return nil, false
}

func (t *transaction) guards(resource string) bool {
	if t == nil {
		return false
	}
	for _, l := range t.levels {
		if _, ok := l.guards[resource]; ok {
			return true
		}
	}
	return false
}

func (t *transaction) claims(resource string) bool {
	for _, l := range t.levels {
		if _, ok := l.claims[resource]; ok {
			return true
		}
	}
	return false
}

// release puts what was done since the level was begun into the one around it.
func (t *transaction) release(depth int) {
	outer := t.levels[depth-1]
	for _, l := range t.levels[depth:] {
		for resource, r := range l.changes {
			outer.changes[resource] = r
		}
		for resource := range l.guards {
			outer.guards[resource] = struct{}{}
		}
		for token := range l.guardedShares {
			outer.guardedShares[token] = struct{}{}
		}
		for resource := range l.claims {
			outer.claims[resource] = struct{}{}
		}
		outer.served = append(outer.served, l.served...)
		outer.onEnd = append(outer.onEnd, l.onEnd...)
		l.into = outer
	}
	t.levels = t.levels[:depth]
}

// end ends the levels from depth on, and returns whom to tell.
func (t *transaction) end(depth int, outcome locks.Outcome) []func(locks.Outcome) {
	var tell []func(locks.Outcome)
	for _, l := range t.levels[depth:] {
		l.outcome = outcome
		tell = append(tell, l.onEnd...)
	}
	t.levels = t.levels[:depth]
	return tell
}

// interest is what open transactions have to do with a resource. Its zero value is nothing.
type interest struct {
	changed  bool // it was acquired, renewed or released there
	replaced bool // it was acquired or released there: the grant that others see may be gone
	guarded  bool // or found again by an acquire
}

// others returns what the open transactions other than t have to do with the resource. There are few at a time: they
// are looked through.
func (s *Store) others(t *transaction, resource string) interest {
	var found interest
	for other := range s.open {
		if other == t {
			continue
		}
		if r, changed := other.changed(resource); changed {
			found.changed = true
			committed := s.rows[resource]
			found.replaced = found.replaced || r == nil || committed == nil || r.token != committed.token
		}
		found.guarded = found.guarded || other.guards(resource) || other.claims(resource)
	}
	return found
}
