package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// List implements [locks.Lister]. Each page looks at every row.
func (s *Store) List(ctx context.Context, query locks.ListQuery) (locks.Page, error) {
	if err := ctx.Err(); err != nil {
		return locks.Page{}, err
	}
	if err := query.Validate(); err != nil {
		return locks.Page{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	var found []*row
	for _, r := range s.rows {
		if r.live(now) && r.resource > query.After && strings.HasPrefix(r.resource, query.Prefix) &&
			(query.Owner == "" || r.owner == query.Owner) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *row) int { return cmp.Compare(a.resource, b.resource) })

	page := locks.Page{More: len(found) > query.Limit}
	for _, r := range found[:min(len(found), query.Limit)] {
		page.Locks = append(page.Locks, r.lock(now))
	}
	return page, nil
}

// Purge implements [locks.Purger]. It forgets shares and the tickets of waiters that have ended, too, and does not count them.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if limit < 1 {
		return 0, &locks.InvalidError{Field: "limit", Reason: fmt.Sprintf("must be at least 1, got %d", limit)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	s.waiting.sweep(now)
	s.sweepShares(now)
	purged := 0
	for resource, r := range s.rows {
		if purged == limit {
			break
		}
		if !r.live(now) && s.others(nil, resource) == (interest{}) {
			delete(s.rows, resource)
			purged++
		}
	}
	return purged, nil
}

// ForceRelease implements [locks.ForceReleaser].
func (s *Store) ForceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateResource(resource); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateToken(token); err != nil {
		return locks.Lock{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	r := s.rows[resource]
	if !r.live(now) {
		return locks.Lock{}, locks.ErrNotFound
	}
	if r.isGroup() && r.token != token {
		return s.forceReleaseShare(resource, token)
	}
	if r.token != token {
		grant := locks.Grant{Resource: resource, Token: token} // whose it was is not known
		return locks.Lock{}, &locks.LostError{Grant: grant, Reason: locks.ErrSuperseded}
	}
	if err := s.free(nil, resource); err != nil {
		return locks.Lock{}, err
	}
	delete(s.shares, resource)
	return r.lock(now), nil
}
