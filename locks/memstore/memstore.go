// Package memstore keeps leases in the memory of one process: for tests, for examples, and for a host that will only
// ever be one process.
//
// It keeps every promise that package lockstest tests, so that what runs on it runs on a database. It does not keep
// anything when the process ends, and it knows nothing of other processes: two replicas of a service that both use a
// memstore do not exclude each other.
package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks"
)

var (
	_ locks.Store         = (*Store)(nil)
	_ locks.Lister        = (*Store)(nil)
	_ locks.Purger        = (*Store)(nil)
	_ locks.ForceReleaser = (*Store)(nil)
)

// Store holds leases in memory. It is safe for concurrent use and never blocks for longer than another of its calls
// takes; a context is looked at once, before anything is done.
//
// Its clock is the process's monotonic one, so that a jump of the wall clock neither ends nor prolongs a lease; on
// systems whose monotonic clock stands still while the machine is suspended, its leases stand still too. Under
// testing/synctest it lives in virtual time.
//
// The row of a lease that ended by time stays until the resource is acquired again or [Store.Purge] deletes it, as in
// a database: a host that names ever new resources purges, with a [locks.Janitor] or by itself.
//
// The zero value is an empty store, ready for use. It must not be copied.
type Store struct {
	mu        sync.Mutex
	rows      map[string]*row // by resource
	lastID    int64
	lastToken int64 // outlives rows, so that tokens only grow
}

// row is a lease as it is kept. Its times have the monotonic reading; those of a [locks.Lock] do not.
type row struct {
	id         int64
	resource   string
	owner      string
	attempt    string
	token      int64
	acquiredAt time.Time
	expiresAt  time.Time
	metadata   json.RawMessage
}

// New returns an empty store.
func New() *Store { return &Store{} }

// Acquire implements [locks.Store].
func (s *Store) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return locks.Lock{}, err
	}
	if err := request.Validate(); err != nil {
		return locks.Lock{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	r := s.rows[request.Resource]
	if r.live(now) {
		if r.owner != request.Owner {
			holder := r.lock(now)
			return locks.Lock{}, locks.Held(request.Resource, &holder)
		}
		if r.attempt == request.Attempt {
			return r.lock(now), nil
		}
	}
	if r == nil {
		s.lastID++
		r = &row{id: s.lastID, resource: request.Resource}
		if s.rows == nil {
			s.rows = make(map[string]*row)
		}
		s.rows[request.Resource] = r
	}
	s.lastToken++
	r.owner, r.attempt, r.token = request.Owner, request.Attempt, s.lastToken
	r.acquiredAt, r.expiresAt = now, now.Add(request.TTL)
	r.metadata = bytes.Clone(request.Metadata)
	return r.lock(now), nil
}

// Renew implements [locks.Store].
func (s *Store) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return locks.Lock{}, err
	}
	if err := grant.Validate(); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateTTL(ttl); err != nil {
		return locks.Lock{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	r := s.rows[grant.Resource]
	if err := r.refuse(grant, now); err != nil {
		return locks.Lock{}, err
	}
	r.expiresAt = now.Add(ttl)
	return r.lock(now), nil
}

// Release implements [locks.Store].
func (s *Store) Release(ctx context.Context, grant locks.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := grant.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.rows[grant.Resource].refuse(grant, time.Now()); err != nil {
		return err
	}
	delete(s.rows, grant.Resource)
	return nil
}

// ReleaseAttempt implements [locks.Store].
func (s *Store) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := locks.ValidateAttempt(resource, owner, attempt); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.rows[resource]
	if !r.live(time.Now()) || r.owner != owner || r.attempt != attempt {
		return locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
	}
	delete(s.rows, resource)
	return nil
}

// Get implements [locks.Store].
func (s *Store) Get(ctx context.Context, resource string) (locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateResource(resource); err != nil {
		return locks.Lock{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	r := s.rows[resource]
	if !r.live(now) {
		return locks.Lock{}, locks.ErrNotFound
	}
	return r.lock(now), nil
}

// live reports whether there is a row and its lease is unexpired. Expired means gone: now >= expiresAt.
func (r *row) live(now time.Time) bool { return r != nil && now.Before(r.expiresAt) }

// refuse says why the grant is not current, or nil.
func (r *row) refuse(grant locks.Grant, now time.Time) error {
	if r == nil {
		return locks.Refuse(grant, nil, false)
	}
	current := r.lock(now)
	return locks.Refuse(grant, &current, r.live(now))
}

// lock returns a record that shares no memory with the row.
func (r *row) lock(now time.Time) locks.Lock {
	return locks.Lock{
		ID:         r.id,
		Resource:   r.resource,
		Owner:      r.owner,
		Token:      r.token,
		AcquiredAt: r.acquiredAt.UTC(), // UTC drops the monotonic reading
		ExpiresAt:  r.expiresAt.UTC(),
		Remaining:  r.expiresAt.Sub(now),
		Metadata:   bytes.Clone(r.metadata),
	}
}
