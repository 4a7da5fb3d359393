package locks_test

import (
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// What the locker itself costs beside a store that costs next to nothing.
func BenchmarkPair(b *testing.B) {
	locker, err := locks.New(memstore.New())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		lease, err := locker.TryAcquire(b.Context(), "job:42")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	locker, err := locks.New(memstore.New())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := locker.TryAcquire(b.Context(), "job:42"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := locker.TryAcquire(b.Context(), "job:42"); err == nil {
			b.Fatal("granted twice")
		}
	}
}
