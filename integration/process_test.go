package integration_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

var workerBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rowlease-worker")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "worker")
	out, err := osexec.Command("go", "build", "-o", binary, "./internal/worker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the worker: %w\n%s", err, out)
	}
	return binary, nil
})

// worker is another process, and the lines it prints.
type worker struct {
	*osexec.Cmd
	lines chan string
}

func startWorker(t *testing.T, zone string, args ...string) worker {
	t.Helper()
	binary, err := workerBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "TZ="+zone)
	w := follow(t, cmd)
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return w
}

// follow starts the command and passes its lines on. Whoever calls it sees to its end.
func follow(t *testing.T, cmd *osexec.Cmd) worker {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := worker{cmd, make(chan string, 16)}
	go func() {
		defer close(w.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			w.lines <- scanner.Text()
		}
	}()
	return w
}

func (w worker) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := w.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// line returns the next line, which must begin so.
func (w worker) line(t *testing.T, begin string) string {
	t.Helper()
	select {
	case line := <-w.lines:
		if !strings.HasPrefix(line, begin) {
			t.Fatalf("the worker says %q, want %q", line, begin)
		}
		return line
	case <-time.After(time.Minute):
		t.Fatalf("the worker does not say %q", begin)
		return ""
	}
}

// Three processes in three time zones increment one counter by reading and writing it: no increment is lost.
func TestProcessesExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	db := open(t, "pgx", dsn)
	exec(t, db, "CREATE TABLE counter AS SELECT 0 AS n")
	var workers sync.WaitGroup
	for _, zone := range []string{"UTC", "Asia/Kolkata", "America/Los_Angeles"} {
		w := startWorker(t, zone, "-dsn", dsn, "-resource", "counter", "-rounds", "60", "-ttl", "30s")
		workers.Go(func() {
			for line := range w.lines {
				t.Errorf("worker in %s: %s", zone, line)
			}
		})
	}
	workers.Wait()
	if n := scan[int](t, db, "SELECT n FROM counter"); n != 180 {
		t.Errorf("counter = %d after 180 increments", n)
	}
	if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A killed process keeps others out until its TTL has passed, and no longer than one poll more.
func TestAKilledProcessFreesItsLeaseAfterTheTTL(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	w := startWorker(t, "UTC", "-dsn", dsn, "-resource", "job:42", "-ttl", "2s")
	w.line(t, "held")
	db := open(t, "pgx", dsn)
	locker := newLocker(t, db)
	w.signal(t, syscall.SIGKILL)
	ends := scan[time.Time](t, db, "SELECT expires_at FROM distributed_locks")
	lease, err := locker.Acquire(t.Context(), "job:42")
	if err != nil {
		t.Fatal(err)
	}
	if at := lease.Lock().AcquiredAt; at.Before(ends) || at.After(ends.Add(2*time.Second)) {
		t.Errorf("taken over at %v, want at the end of the lease at %v or a poll later", at, ends)
	}
}

// A process that is stopped cannot be told while it sleeps; it learns when it runs again, and harms nobody.
func TestAStoppedProcessLearnsWhenItRunsAgain(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	w := startWorker(t, "UTC", "-dsn", dsn, "-resource", "job:42", "-ttl", "1s")
	w.line(t, "held")
	w.signal(t, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := newLocker(t, open(t, "pgx", dsn)).Acquire(ctx, "job:42")
	if err != nil {
		t.Fatal(err)
	}
	w.signal(t, syscall.SIGCONT)
	if line := w.line(t, "lost:"); !strings.Contains(line, locks.ErrLost.Error()) {
		t.Errorf("the worker says %q", line)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("the new holder's renewal: %v", err)
	}
}
