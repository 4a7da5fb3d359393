package bunstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// AcquireAll implements [locks.MultiAcquirer]. Each request may have an owner, an attempt, a TTL and metadata of its own.
// It is a transaction of the store's own, which is rolled back unless all is granted; Remaining of the locks is of the
// instant before its commit.
//
// On PostgreSQL it is three round trips, and for their time one advisory lock for each resource, which count against
// max_locks_per_transaction × max_connections of the server. On SQLite it is one statement for each resource that is not
// held yet, with the file's write lock; a refusal, and a retry that finds all of its grants, do without that lock.
func (s *Store) AcquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	if err := locks.ValidateAll(requests); err != nil {
		return nil, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()

	order := make([]int, len(requests)) // of the resources' bytes
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(requests[a].Resource, requests[b].Resource) })
	sorted := make([]locks.Request, len(requests))
	for at, i := range order {
		sorted[at] = requests[i]
	}
	granted, err := s.engine.acquireAll(ctx, sorted)
	if err != nil {
		return nil, s.fault(ctx, "acquire all", err)
	}
	locked := make([]locks.Lock, len(requests))
	for at, i := range order {
		locked[i] = granted[at]
	}
	return locked, nil
}
