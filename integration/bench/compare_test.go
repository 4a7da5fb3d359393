package bench_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

// work is one unit of what is measured, done by one of the clients.
type work func(ctx context.Context, client, n int) error

// compare alternates batches of the two and reports the time of each for one unit, as seen by one client, and the
// median of their ratios. It does b.N batches of each.
func compare(b *testing.B, clients int, library, byHand work) {
	b.Helper()
	const batch = 50
	n := 0
	// As a request's or a worker's, a context that can be cancelled: drivers and database/sql watch it at a cost.
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	run := func(w work) time.Duration {
		var wg sync.WaitGroup
		start := time.Now()
		for client := range clients {
			first := n + client*batch
			wg.Go(func() {
				for i := range batch {
					if err := w(ctx, client, first+i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		n += clients * batch
		return time.Since(start) / batch
	}
	for range 3 { // connections are opened, statements prepared
		run(byHand)
		run(library)
	}
	var hand, lib, ratio []float64
	for b.Loop() {
		h := run(byHand)
		l := run(library)
		hand, lib = append(hand, float64(h.Nanoseconds())/1e3), append(lib, float64(l.Nanoseconds())/1e3)
		ratio = append(ratio, float64(l)/float64(h))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(hand), "µs-by-hand")
	b.ReportMetric(median(lib), "µs-rowlease")
	b.ReportMetric(median(ratio), "ratio")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
