package bench_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// BenchmarkShare is an acquire and a release of a share, and of a lease that nobody else asks for, in turns. Others is how many
// have a share of the same group all the time. Clients is how many do that at once, each with a lease of its own, and all with
// shares of the same group.
func BenchmarkShare(b *testing.B) {
	for _, database := range databases {
		for _, kind := range []struct {
			name                   string
			slots, others, clients int
		}{
			{"alone in 5 slots", 5, 0, 1},
			{"beside 100 readers", locks.Shared, 100, 1},
			{"beside 100 in 200 slots", 200, 100, 1},
			{"beside 1000 readers", locks.Shared, 1000, 1},
			{"beside 1000 in 2000 slots", 2000, 1000, 1},
			{"beside 100 readers by 16 clients", locks.Shared, 100, 16},
		} {
			b.Run(fmt.Sprintf("%s/%s", database.name, strings.ReplaceAll(kind.name, " ", "-")), func(b *testing.B) {
				db := database.open(b)
				store := newStore(b, db)
				request := func(resource, owner string, n int) locks.Request {
					return locks.Request{Resource: resource, Owner: owner, Attempt: fmt.Sprint("attempt-", n), TTL: time.Hour, Slots: kind.slots}
				}
				for n := range kind.others {
					if _, err := store.Acquire(b.Context(), request("crowd", fmt.Sprint("other-", n), 0)); err != nil {
						b.Fatal(err)
					}
				}
				for _, statement := range []string{"VACUUM", "ANALYZE"} {
					if _, err := db.DB.ExecContext(b.Context(), statement); err != nil {
						b.Fatal(err)
					}
				}
				pair := func(ctx context.Context, r locks.Request) error {
					lock, err := store.Acquire(ctx, r)
					if err != nil {
						return err
					}
					return store.Release(ctx, lock.Grant())
				}
				inTurns(b, kind.clients, func(ctx context.Context, client, n int) error {
					r := request("crowd", fmt.Sprint("owner-", client), n)
					if kind.others == 0 {
						r.Resource = resource(client, n)
					}
					return pair(ctx, r)
				}, func(ctx context.Context, client, n int) error {
					r := request("alone:"+resource(client, n), "owner", n)
					r.Slots = 0
					return pair(ctx, r)
				})
			})
		}
	}
}

// inTurns alternates batches of the two, and reports what one of each takes, as seen by one client.
func inTurns(b *testing.B, clients int, share, lease work) {
	b.Helper()
	const batch = 20
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	n := 0
	run := func(w work) float64 {
		began, first := time.Now(), n
		var all sync.WaitGroup
		for client := range clients {
			all.Go(func() {
				for i := range batch {
					if err := w(ctx, client, first+i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		n += batch
		return float64(time.Since(began).Nanoseconds()) / 1e3 / batch
	}
	run(share) // connections are opened, statements prepared
	run(lease)
	var shares, leases, ratio []float64
	for b.Loop() {
		shares, leases = append(shares, run(share)), append(leases, run(lease))
		ratio = append(ratio, shares[len(shares)-1]/leases[len(leases)-1])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(shares), "µs-share")
	b.ReportMetric(median(leases), "µs-lease")
	b.ReportMetric(median(ratio), "ratio")
}
