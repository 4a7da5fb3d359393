package lockstest

import (
	"github.com/rowlease/rowlease/locks"
)

// model is what the promises come to, for calls one after another: a row per resource, and the largest token and id
// that each ever had. Where the store chooses (ids, tokens, instants) the model takes its word and checks the rule.
type model struct {
	rows   map[string]*modelRow
	tokens map[string]int64
	ids    map[string]int64
}

type modelRow struct {
	lock    locks.Lock
	attempt string
	ended   bool
}

// What an acquire may come to.
const (
	granted = "a new grant"
	found   = "its own grant again"
	held    = "held"
)

func (m *model) acquire(r locks.Request) string {
	row := m.rows[r.Resource]
	switch {
	case row == nil || row.ended:
		return granted
	case row.lock.Owner != r.Owner:
		return held
	case row.attempt == r.Attempt:
		return found
	}
	return granted
}

// take notes a new grant and returns what the promises want it to be.
func (m *model) take(r locks.Request, got locks.Lock) (want locks.Lock, ok bool) {
	want = locks.Lock{
		ID: got.ID, Resource: r.Resource, Owner: r.Owner, Token: got.Token,
		AcquiredAt: got.AcquiredAt, ExpiresAt: got.AcquiredAt.Add(r.TTL), Metadata: r.Metadata,
	}
	ok = got.Token > m.tokens[r.Resource]
	if row := m.rows[r.Resource]; row != nil {
		want.ID = row.lock.ID
	} else {
		ok = ok && got.ID != m.ids[r.Resource]
	}
	m.rows[r.Resource] = &modelRow{lock: want, attempt: r.Attempt}
	m.tokens[r.Resource], m.ids[r.Resource] = got.Token, got.ID
	return want, ok
}

// lost is the reason why a grant is not current, or nil.
func (m *model) lost(g locks.Grant) error {
	row := m.rows[g.Resource]
	switch {
	case row == nil:
		return locks.ErrNotHeld
	case row.lock.Owner == g.Owner && (g.Token == locks.AnyToken || g.Token == row.lock.Token):
		if row.ended {
			return locks.ErrExpired
		}
		return nil
	case row.ended:
		return locks.ErrNotHeld
	case row.lock.Owner != g.Owner:
		return locks.ErrNotOwner
	}
	return locks.ErrSuperseded
}

// live returns the resource's live lease, or nil.
func (m *model) live(resource string) *locks.Lock {
	if row := m.rows[resource]; row != nil && !row.ended {
		return &row.lock
	}
	return nil
}
