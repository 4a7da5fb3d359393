package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// AcquireAll implements [locks.MultiAcquirer].
func (s *Store) AcquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := locks.ValidateAll(requests); err != nil {
		return nil, err
	}
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(requests[a].Resource, requests[b].Resource) })
	s.mu.Lock()
	defer s.mu.Unlock()

	all := &transaction{levels: []*level{newLevel()}} // over before anybody can see it
	granted := make([]locks.Lock, len(requests))
	for _, i := range order {
		lock, err := s.acquire(all, requests[i])
		if err != nil {
			return nil, err
		}
		granted[i] = lock
	}
	for resource, r := range all.top().changes {
		s.put(nil, resource, r)
	}
	return granted, nil
}
