package integration_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/integration/internal/waiter/process"
	"github.com/rowlease/rowlease/locks"
)

// turns is some who wait for one resource in four processes, while the test holds it.
type turns struct {
	db        *bun.DB
	holder    *locks.Locker
	lease     *locks.Lease
	processes [4]*process.Process
}

// newTurns starts the processes, of which each second one has the other driver.
func newTurns(t *testing.T, flags ...string) *turns {
	t.Helper()
	dsn := migrated(t, postgres.Shared(t))
	w := &turns{db: open(t, "pgx", dsn)}
	for i := range w.processes {
		driver := []string{"pgx", "pgdriver"}[i%2]
		w.processes[i] = process.Start(t, append([]string{"-dsn", dsn, "-driver", driver}, flags...)...)
	}
	w.holder = newWaitingLocker(t, w.db)
	w.lease = hold(t, w.holder, "r")
	return w
}

// come lets somebody wait in the process, and returns when that one is in the queue.
func (w *turns) come(t *testing.T, process int, owner string) {
	t.Helper()
	w.processes[process].Say(t, "pass r %s", owner)
	w.processes[process].Line(t, "queued "+owner)
}

// served is one who was granted the resource: grants have larger and larger tokens.
type served struct {
	owner string
	token int64
}

// servedIn returns the next so many that are served in the process.
func (w *turns) servedIn(t *testing.T, process, n int) (all []served) {
	t.Helper()
	for range n {
		var s served
		if _, err := fmt.Sscan(w.processes[process].Line(t, "granted"), &s.owner, &s.token); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// wantOrder looks at the order of the grants.
func wantOrder(t *testing.T, all []served, want []string) {
	t.Helper()
	slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.token, b.token) })
	var got []string
	for _, s := range all {
		got = append(got, s.owner)
	}
	if slices.Equal(got, want) {
		return
	}
	wrong := 0
	for wrong < min(len(got), len(want)) && got[wrong] == want[wrong] {
		wrong++
	}
	t.Errorf("%d were served, want %d; from the %d. on it was %q, want %q", len(got), len(want), wrong+1,
		got[wrong:min(wrong+5, len(got))], want[wrong:min(wrong+5, len(want))])
}

// One comes after another, each to another process: in this order they are served, whatever is heard.
func TestProcessesAreServedInTheOrderTheyCame(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	for what, test := range map[string]struct {
		n     int
		flags []string
		long  bool // the wait is longer than a ticket lasts
	}{
		"a thousand":                 {1000, nil, false},
		"every notification is lost": {5, []string{"-hears", "echoes", "-ticket-ttl", "3s"}, false},
		"without a waker":            {40, []string{"-hears", "nothing", "-min-poll", "5ms", "-max-poll", "20ms"}, false},
		"pools of one connection":    {100, []string{"-pool", "1"}, false},
		"a long wait":                {40, []string{"-ticket-ttl", "3s"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if stress {
				test.n *= 5
			}
			w := newTurns(t, test.flags...)
			var want []string
			for i := range test.n {
				owner := fmt.Sprint("w-", i)
				w.come(t, i%4, owner)
				want = append(want, owner)
			}
			if test.long {
				eventually(t, "all have waited for longer than a ticket lasts", func() bool {
					return scan[bool](t, w.db, "SELECT max(since) < clock_timestamp() - interval '3 s' FROM distributed_lock_waiters")
				})
			}
			letGo(t, w.lease)
			var all []served
			for i := range w.processes {
				all = append(all, w.servedIn(t, i, (test.n+3-i)/4)...)
			}
			wantOrder(t, all, want)
		})
	}
}

// Many come at once, in four processes: they are served in the order of their tickets.
func TestProcessesAreServedInTheOrderOfTickets(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	each := 50 // in each process
	if stress {
		each = locks.MaxListWaiters / 4
	}
	w := newTurns(t)
	for i := range each {
		for p := range w.processes {
			w.processes[p].Say(t, "pass r p%d-%d", p, i)
		}
	}
	for _, p := range w.processes {
		for range each {
			p.Line(t, "queued")
		}
	}
	queue, err := w.holder.Waiters(t.Context(), "r", locks.MaxListWaiters)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, waiter := range queue.Waiters {
		want = append(want, waiter.Owner)
	}
	letGo(t, w.lease)
	var all []served
	for p := range w.processes {
		all = append(all, w.servedIn(t, p, each)...)
	}
	wantOrder(t, all, want)
}

// A waiter that was killed, or stopped, is passed over when its ticket has ended, and nobody else is.
func TestProcessesThatDoNotRunArePassedOver(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	for what, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newTurns(t, "-ticket-ttl", "5s")
			w.come(t, 1, "not-running-1")
			w.come(t, 0, "a")
			w.come(t, 1, "not-running-2")
			w.come(t, 2, "b")
			w.come(t, 3, "c")
			w.processes[1].Signal(t, signal)
			letGo(t, w.lease)
			all := append(w.servedIn(t, 0, 1), w.servedIn(t, 2, 1)...)
			all = append(all, w.servedIn(t, 3, 1)...)
			if signal == syscall.SIGSTOP { // it learns that its places are gone, and comes again
				w.processes[1].Signal(t, syscall.SIGCONT)
				late := w.servedIn(t, 1, 2)
				for _, s := range late {
					if !strings.HasPrefix(s.owner, "not-running") || s.token < all[2].token {
						t.Errorf("%s was served with token %d, want after c with %d", s.owner, s.token, all[2].token)
					}
				}
			}
			wantOrder(t, all, []string{"a", "b", "c"})
		})
	}
}

// When the holder's process is killed, the next ones get in, in their order, once its lease has ended.
func TestProcessesGetInAfterAKilledHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	w := newTurns(t, "-ttl", "2s")
	w.processes[0].Say(t, "keep r holder")
	w.processes[0].Line(t, "queued holder")
	w.come(t, 1, "a")
	w.come(t, 2, "b")
	w.come(t, 3, "c")
	letGo(t, w.lease)
	w.processes[0].Line(t, "got holder")
	w.processes[0].Signal(t, syscall.SIGKILL)
	all := append(w.servedIn(t, 1, 1), w.servedIn(t, 2, 1)...)
	wantOrder(t, append(all, w.servedIn(t, 3, 1)...), []string{"a", "b", "c"})
}

// Five hundred wait in a process whose pool has five connections: there are never more than these and the waker's.
func TestACrowdHasNoMoreConnectionsThanThePool(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	db := open(t, "pgx", dsn)
	lease := hold(t, newWaitingLocker(t, db), "r")
	const pool = 5
	p := process.Start(t, "-dsn", withParameter(t, dsn, "application_name", "crowd"), "-pool", fmt.Sprint(pool))
	most := 0
	until := func(what string) {
		t.Helper()
		for p.Silent() {
			most = max(most, sessions(t, db, "crowd"))
		}
		p.Line(t, what)
	}
	p.Say(t, "crowd r 500 w")
	until("queued w")
	queued(t, db, 500)
	letGo(t, lease)
	until("passed w")
	if most < 2 || most > pool+1 {
		t.Errorf("there were %d connections at the most, want from 2 to the %d of the pool and the waker's", most, pool)
	}
}
