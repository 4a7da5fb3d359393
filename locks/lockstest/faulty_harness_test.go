package lockstest

import (
	"slices"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

// faultyHarness opens stores with the fault.
func faultyHarness(fault string) Harness {
	return Harness{
		Open: func(_ testing.TB, n int) []locks.Store {
			s := &faulty{fault: fault, rows: map[string]*faultyRow{}, remembered: map[string]locks.Lock{}}
			return slices.Repeat([]locks.Store{s}, n)
		},
		Expire: func(_ testing.TB, store locks.Store, resource string) {
			s := store.(*faulty)
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.rows[s.fold(resource)]; r != nil {
				r.ended = true
			}
		},
		DeleteRow: func(_ testing.TB, store locks.Store, resource string) {
			s := store.(*faulty)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.rows, resource)
		},
		Truncate: func(_ testing.TB, store locks.Store) {
			s := store.(*faulty)
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.rows)
			s.ids = 0
		},
		Rows: func(_ testing.TB, store locks.Store) int {
			s := store.(*faulty)
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.rows)
		},
		Parallel: true,
	}
}
