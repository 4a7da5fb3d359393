package memstore

import (
	"bytes"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// The steps of a store and of its transactions. Each is told the transaction it is a part of, nil outside of one, and
// runs under the store's mutex.

func (s *Store) acquire(t *transaction, request locks.Request) (locks.Lock, error) {
	if t.guards(request.Resource) {
		return locks.Lock{}, locks.ErrGuarded
	}
	now := time.Now()
	r := s.row(t, request.Resource)
	live := r.live(now)
	if live && r.owner == request.Owner && r.attempt == request.Attempt {
		if t == nil {
			s.waiting.remove(waitsFor(request)) // drawn by a retry that came after the grant
			return r.lock(now), nil
		}
		if s.others(t, request.Resource) != (interest{}) {
			return locks.Lock{}, locks.Held(request.Resource, nil)
		}
		t.top().claims[request.Resource] = struct{}{} // a part of the transaction, as what it is granted anew
		return r.lock(now), nil
	}
	if live && r.owner != request.Owner || s.others(t, request.Resource) != (interest{}) {
		var holder *locks.Lock
		if live {
			if err := s.ownShare(request, now); err != nil {
				return locks.Lock{}, err
			}
			lock := r.lock(now)
			holder = &lock
		}
		return locks.Lock{}, locks.Held(request.Resource, holder)
	}
	if !live && s.isOthersTurn(request, now) { // what is its own it takes over without asking them
		return locks.Lock{}, locks.Held(request.Resource, nil)
	}
	granted := &row{
		resource: request.Resource, owner: request.Owner, attempt: request.Attempt,
		acquiredAt: now, expiresAt: now.Add(request.TTL), metadata: bytes.Clone(request.Metadata),
	}
	if r != nil { // taken over in place
		granted.id = r.id
	}
	s.identify(granted)
	s.put(t, request.Resource, granted)
	return granted.lock(now), nil
}

// identify gives a new grant its token, and its id where it does not take over a row that has one.
func (s *Store) identify(r *row) {
	if r.id == 0 {
		s.lastID++
		r.id = s.lastID
	}
	s.lastToken++
	r.token = s.lastToken
}

func (s *Store) renew(t *transaction, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	now := time.Now()
	r := s.row(t, grant.Resource)
	if r.isGroup() {
		return s.renewShare(t, grant, ttl)
	}
	if err := r.refuse(grant, now); err != nil {
		return locks.Lock{}, err
	}
	if s.others(t, grant.Resource).changed {
		return locks.Lock{}, locks.ErrBusy
	}
	renewed := *r
	renewed.expiresAt = now.Add(ttl)
	s.put(t, grant.Resource, &renewed)
	return renewed.lock(now), nil
}

func (s *Store) release(t *transaction, grant locks.Grant) error {
	r := s.row(t, grant.Resource)
	if r.isGroup() {
		return s.releaseShare(t, grant)
	}
	if err := r.refuse(grant, time.Now()); err != nil {
		return err
	}
	return s.free(t, grant.Resource)
}

// free deletes the row of a lease that may be ended, unless an open transaction has to do with it.
func (s *Store) free(t *transaction, resource string) error {
	if s.others(t, resource) != (interest{}) {
		return locks.ErrGuarded
	}
	s.put(t, resource, nil)
	return nil
}

func (s *Store) guard(t *transaction, grant locks.Grant) error {
	r := s.row(t, grant.Resource)
	if r.isGroup() {
		return s.guardShare(t, grant)
	}
	if err := r.refuse(grant, time.Now()); err != nil {
		return err
	}
	if s.others(t, grant.Resource).replaced {
		return locks.ErrBusy
	}
	t.top().guards[grant.Resource] = struct{}{}
	return nil
}

// row returns the resource's row as the transaction sees it, nil where there is none.
func (s *Store) row(t *transaction, resource string) *row {
	if r, changed := t.changed(resource); changed {
		return r
	}
	return s.rows[resource]
}

// put makes r the resource's row: for the transaction, where there is one. With nil there is none any more.
func (s *Store) put(t *transaction, resource string, r *row) {
	switch {
	case t != nil:
		t.top().changes[resource] = r
		if r != nil {
			t.top().served = append(t.top().served, waits{resource, r.owner, r.attempt})
		}
	case r == nil:
		delete(s.rows, resource)
		s.wakeFirst(resource)
	default:
		if !r.isGroup() {
			s.waiting.remove(waits{resource, r.owner, r.attempt})
			delete(s.shares, resource) // of a group that has ended
		}
		if s.rows == nil {
			s.rows = make(map[string]*row)
		}
		s.rows[resource] = r
	}
}
