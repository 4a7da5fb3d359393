package bench_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/integration/internal/waiter/process"
)

// BenchmarkCrowd is what a hand-over costs PostgreSQL while so many wait for the resource, in four processes: statements by
// pg_stat_statements, those of the wakers and of keeping the tickets included, and hand-overs per second. Then it lets all of
// them wait, and tells what keeping the tickets costs each second: statements, and the server's time for them. That they
// come is not measured.
func BenchmarkCrowd(b *testing.B) {
	server := postgres.Start(b, postgres.Durable(), postgres.Setting("shared_preload_libraries", "pg_stat_statements"))
	for _, size := range []struct{ waiters, batch, batches, rounds int }{
		{1, 1, 1, 500}, {100, 100, 1, 10}, {10_000, 100, 10, 1},
	} {
		b.Run(fmt.Sprintf("waiters=%d", size.waiters), func(b *testing.B) {
			var each []time.Duration // for a hand-over, of each batch
			handOvers, statements := 0, 0
			for b.Loop() {
				c := newCrowd(b, server)
				c.round(b, 40, 40, 1) // connections are opened, statements prepared
				for range size.rounds {
					n, batches := c.round(b, size.waiters, size.batch, size.batches)
					handOvers, statements, each = handOvers+size.batch*size.batches, statements+n, append(each, batches...)
				}
				c.come(b, size.batch*size.batches) // again so many wait
				c.idle(b)
				c.end()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(statements)/float64(handOvers), "statements/hand-over")
			b.ReportMetric(1e6/percentile(each, 50), "hand-overs/s")
		})
	}
}

// crowd is those who wait, in four processes.
type crowd struct {
	db        *bun.DB
	processes [4]*process.Process
	resource  string // of the round
	holder    keeper
	rounds    int
	crowds    int
}

func newCrowd(b *testing.B, server *postgres.Server) *crowd {
	b.Helper()
	dsn := server.Database(b)
	sqldb, err := sql.Open("pgx", dsn)
	c := &crowd{db: migrated(b, sqldb, err, pgdialect.New())}
	if _, err := c.db.ExecContext(b.Context(), "CREATE EXTENSION pg_stat_statements"); err != nil {
		b.Fatal(err)
	}
	for i := range c.processes {
		c.processes[i] = process.Start(b, "-dsn", dsn, "-ttl", "10m")
	}
	return c
}

func (c *crowd) end() {
	for _, p := range c.processes {
		p.Kill()
	}
}

// come lets so many come, a quarter of them in each process.
func (c *crowd) come(b *testing.B, waiters int) {
	b.Helper()
	c.crowds++
	for i, p := range c.processes {
		p.Say(b, "crowd %s %d crowd-%d", c.resource, (waiters+3-i)/4, c.crowds)
	}
	for _, p := range c.processes {
		p.Until(b, fmt.Sprint("queued crowd-", c.crowds))
	}
}

// keeper is one who keeps the resource until it is told to free it.
type keeper struct {
	process *process.Process
	owner   string
}

func (c *crowd) keep(b *testing.B, p *process.Process, name string) keeper {
	b.Helper()
	k := keeper{p, name + "-of-" + c.resource}
	p.Say(b, "keep %s %s", c.resource, k.owner)
	return k
}

// got waits until it has the resource, and returns the instant.
func (k keeper) got(b *testing.B) int64 {
	b.Helper()
	return k.process.Instant(b, "got "+k.owner)
}

// free returns the instant at which the release began.
func (k keeper) free(b *testing.B) int64 {
	b.Helper()
	k.process.Say(b, "free %s", k.owner)
	return k.process.Instant(b, "freed "+k.owner)
}

// round lets so many wait, passes the resource on in batches, and returns the statements and what a hand-over took in each
// batch. The last one of a batch keeps it until the next one begins, in another process than the one before the first.
func (c *crowd) round(b *testing.B, waiters, batch, batches int) (statements int, each []time.Duration) {
	b.Helper()
	if c.holder.process != nil {
		c.holder.free(b)
	}
	c.rounds++
	c.resource = fmt.Sprint("r", c.rounds)
	c.holder = c.keep(b, c.processes[0], "first")
	c.holder.got(b)
	lasts := make([]keeper, batches)
	for i := range lasts {
		if batch > 1 {
			c.come(b, batch-1)
		}
		lasts[i] = c.keep(b, c.processes[1], fmt.Sprint("last-", i))
		lasts[i].process.Until(b, "queued "+lasts[i].owner)
	}
	if more := waiters - batch*batches; more > 0 {
		c.come(b, more)
	}
	time.Sleep(settle)
	before := c.cost(b)
	for _, last := range lasts {
		began := c.holder.free(b)
		each = append(each, time.Duration(last.got(b)-began)/time.Duration(batch))
		c.holder = last
	}
	return c.cost(b).statements - before.statements, each
}

// idle reports what it costs that they wait.
func (c *crowd) idle(b *testing.B) {
	b.Helper()
	const window = 15 * time.Second // the time of a ticket, in which all are kept three times
	before, began := c.cost(b), time.Now()
	time.Sleep(window)
	after, seconds := c.cost(b), time.Since(began).Seconds()
	b.ReportMetric(float64(after.statements-before.statements)/seconds, "keeping-statements/s")
	b.ReportMetric((after.ms-before.ms)/seconds, "keeping-ms/s")
}

// cost is what PostgreSQL has done for the processes so far.
type cost struct {
	statements int
	ms         float64 // that it worked on them
}

func (c *crowd) cost(b *testing.B) (done cost) {
	b.Helper()
	err := c.db.QueryRowContext(b.Context(), `SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(total_exec_time), 0) FROM pg_stat_statements
		WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query NOT LIKE '%pg_stat_statements%'`).
		Scan(&done.statements, &done.ms)
	if err != nil {
		b.Fatal(err)
	}
	return done
}
