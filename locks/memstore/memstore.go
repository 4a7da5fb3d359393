// Package memstore keeps leases in the memory of one process: for tests, for examples, and for a host that will only
// ever be one process.
//
// It keeps every promise that package lockstest tests, so that what runs on it runs on a database. It does not keep
// anything when the process ends, and it knows nothing of other processes: two replicas of a service that both use a
// memstore do not exclude each other. [Store.Begin] gives it transactions, which have no data but leases, so that code
// which acquires or guards in a database's transaction can be tested on it.
package memstore

import (
	"context"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

var (
	_ locks.Store         = (*Store)(nil)
	_ locks.Lister        = (*Store)(nil)
	_ locks.Purger        = (*Store)(nil)
	_ locks.ForceReleaser = (*Store)(nil)
	_ locks.MultiAcquirer = (*Store)(nil)
	_ locks.Transactor    = (*Store)(nil)
)

// Store holds leases in memory. It is safe for concurrent use and never blocks for longer than another of its calls
// takes; a context is looked at once, before anything is done.
//
// Its clock is the process's monotonic one, so that a jump of the wall clock neither ends nor prolongs a lease; on
// systems whose monotonic clock stands still while the machine is suspended, its leases stand still too. Under
// testing/synctest it lives in virtual time.
//
// Those who wait for a resource are served in the order in which they came, see [Store.Enqueue]. While somebody waits one
// goroutine runs, and ends by itself.
//
// The row of a lease that ended by time stays until the resource is acquired again or [Store.Purge] deletes it, as in
// a database: a host that names ever new resources purges, with a [locks.Janitor] or by itself.
//
// The zero value is an empty store, ready for use. It must not be copied.
type Store struct {
	mu        sync.Mutex
	rows      map[string]*row            // by resource
	shares    map[string]map[string]*row // by resource and owner
	lastID    int64
	lastToken int64                     // outlives rows, so that tokens only grow
	open      map[*transaction]struct{} // not ended yet

	queue   *waitqueue.Front // nil before anybody has waited
	waiting tickets
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
	if request.Slots != 0 {
		return s.acquireShare(request)
	}
	return s.acquire(nil, request)
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
	return s.renew(nil, grant, ttl)
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
	return s.release(nil, grant)
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

	if s.isShared(resource) {
		return s.releaseShareAttempt(resource, owner, attempt)
	}
	r := s.rows[resource]
	if !r.live(time.Now()) || r.owner != owner || r.attempt != attempt {
		return locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
	}
	return s.free(nil, resource)
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
