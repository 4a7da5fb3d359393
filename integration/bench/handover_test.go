package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/waiter/process"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// settle is how long a waiter is left alone when it is queued, before the resource is released: it has looked once more by
// then, and sleeps. What is beside it has the same pause before it, since caches, processors and connections that rest are
// slower.
const settle = 3 * time.Millisecond

// BenchmarkHandOver is the time from the start of a release to the return of the next waiter's acquire. On PostgreSQL the two
// are in two processes, and the instants are of CLOCK_MONOTONIC, which the processes of a machine have in common. In turns with that: an
// acquire that nobody is in the way of (floor), PostgreSQL's own queue, a session that is blocked in pg_advisory_lock, and
// a try each 100 ms (poll). On SQLite and in memory the two are goroutines of one process.
func BenchmarkHandOver(b *testing.B) {
	for _, driver := range []string{"pgx", "pgdriver"} {
		b.Run("postgres-"+driver, func(b *testing.B) {
			dsn := durable(b).Database(b)
			sqldb, err := sql.Open("pgx", dsn)
			migrated(b, sqldb, err, pgdialect.New())
			pair := func(kind string) handOvers {
				p := &twoProcesses{resource: kind}
				for i := range p.processes {
					p.processes[i] = process.Start(b, "-dsn", dsn, "-driver", driver, "-ttl", "10m", "-kind", kind)
				}
				return p
			}
			handOver(b, pair("queue"), pair("advisory"), pair("poll"))
		})
	}
	for _, database := range databases {
		if strings.HasPrefix(database.name, "sqlite") {
			b.Run(database.name, func(b *testing.B) {
				store, err := bunstore.New(database.open(b))
				if err != nil {
					b.Fatal(err)
				}
				handOver(b, inOneProcess(b, store), nil, nil)
			})
		}
	}
	b.Run("memory", func(b *testing.B) { handOver(b, inOneProcess(b, memstore.New()), nil, nil) })
}

// handOvers makes one kind of hand-overs.
type handOvers interface {
	// handOver makes n of them and returns how long each took.
	handOver(b *testing.B, n int) []time.Duration
	// floor makes n acquires of free resources.
	floor(b *testing.B, n int) []time.Duration
}

// handOver alternates batches of all kinds, and reports of each what half of them stay below (p50), and all but a
// hundredth (p99).
func handOver(b *testing.B, queue, advisory, poll handOvers) {
	b.Helper()
	var queued, floor, blocked, polled []time.Duration
	queue.handOver(b, 20) // connections are opened, statements prepared, the waiters listen
	queue.floor(b, 50)
	if advisory != nil {
		advisory.handOver(b, 20)
	}
	for b.Loop() {
		for range 20 {
			queued = append(queued, queue.handOver(b, 50)...)
			floor = append(floor, queue.floor(b, 50)...)
			if advisory != nil {
				blocked = append(blocked, advisory.handOver(b, 50)...)
				polled = append(polled, poll.handOver(b, 5)...)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	report := func(name string, all []time.Duration) {
		b.ReportMetric(percentile(all, 50), "p50-µs"+name)
		b.ReportMetric(percentile(all, 99), "p99-µs"+name)
	}
	report("", queued)
	report("-floor", floor)
	if advisory != nil {
		report("-advisory", blocked)
		report("-poll", polled)
	}
	b.ReportMetric(percentile(queued, 50)/percentile(floor, 50), "floors")
}

func percentile(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return float64(all[(len(all)-1)*percent/100].Nanoseconds()) / 1e3
}

// twoProcesses hand a resource to and fro.
type twoProcesses struct {
	resource  string
	processes [2]*process.Process
	n         int // the last holder's number
}

func (p *twoProcesses) handOver(b *testing.B, n int) (took []time.Duration) {
	b.Helper()
	if p.n == 0 {
		p.n++
		p.processes[1].Say(b, "keep %s o-1", p.resource)
		p.processes[1].Instant(b, "got o-1")
	}
	for range n {
		holder, waiter := fmt.Sprint("o-", p.n), fmt.Sprint("o-", p.n+1)
		from, to := p.n%2, (p.n+1)%2
		p.processes[to].Say(b, "keep %s %s", p.resource, waiter)
		p.processes[to].Line(b, "queued "+waiter)
		time.Sleep(settle)
		p.processes[from].Say(b, "free %s", holder)
		began := p.processes[from].Instant(b, "freed "+holder)
		took = append(took, time.Duration(p.processes[to].Instant(b, "got "+waiter)-began))
		p.n++
	}
	return took
}

func (p *twoProcesses) floor(b *testing.B, n int) (took []time.Duration) {
	b.Helper()
	p.processes[0].Say(b, "floor %d %v", n, settle)
	for _, word := range strings.Fields(p.processes[0].Line(b, "floor")) {
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Duration(ns))
	}
	return took
}

// oneProcess hands a resource from goroutine to goroutine.
type oneProcess struct {
	locker *locks.Locker
	queued chan struct{}
}

func inOneProcess(b *testing.B, store locks.Store) *oneProcess {
	b.Helper()
	p := &oneProcess{queued: make(chan struct{}, 1)}
	var err error
	p.locker, err = locks.New(store, locks.WithTTL(10*time.Minute), locks.WithObserver(locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventQueued {
			p.queued <- struct{}{}
		}
	})))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.locker.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return p
}

func (p *oneProcess) handOver(b *testing.B, n int) (took []time.Duration) {
	b.Helper()
	type outcome struct {
		lease *locks.Lease
		at    time.Time
		err   error
	}
	lease, err := p.locker.TryAcquire(b.Context(), "r")
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		got := make(chan outcome, 1)
		go func() {
			lease, err := p.locker.Acquire(b.Context(), "r")
			got <- outcome{lease, time.Now(), err}
		}()
		<-p.queued
		time.Sleep(settle)
		began := time.Now()
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		o := <-got
		if o.err != nil {
			b.Fatal(o.err)
		}
		lease, took = o.lease, append(took, o.at.Sub(began))
	}
	if err := lease.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}

func (p *oneProcess) floor(b *testing.B, n int) (took []time.Duration) {
	b.Helper()
	for i := range n {
		time.Sleep(settle)
		began := time.Now()
		lease, err := p.locker.TryAcquire(b.Context(), fmt.Sprint("free:", i))
		took = append(took, time.Since(began))
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return took
}
