package lockstest

import (
	"slices"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

// faultyHarness opens stores with the fault. One that begins with "one writer: " is put into a store of one writer.
func faultyHarness(fault string) Harness {
	fault, oneWriter := strings.CutPrefix(fault, "one writer: ")
	return Harness{
		OneWriter: oneWriter,
		Open: func(_ testing.TB, n int) []locks.Store {
			s := &faulty{fault: fault, oneWriter: oneWriter, rows: map[string]*faultyRow{}, remembered: map[string]locks.Lock{}, waited: map[string]bool{}}
			s.shares = map[string][]*faultyShare{}
			return slices.Repeat([]locks.Store{s}, n)
		},
		Expire: func(_ testing.TB, store locks.Store, resource string) {
			s := store.(*faulty)
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.rows[s.fold(resource)]; r != nil {
				r.ended = true
			}
			s.freed(resource, "the end of a lease")
		},
		ExpireShare: func(_ testing.TB, store locks.Store, resource, owner string) {
			store.(*faulty).expireShare(resource, owner)
		},
		ExpireTicket: func(_ testing.TB, store locks.Store, number int64) { store.(*faulty).expireTicket(number) },
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
		Begin: func(_ testing.TB, store locks.Store) Transaction {
			return store.(*faulty).open()
		},
		Parallel: true,
	}
}
