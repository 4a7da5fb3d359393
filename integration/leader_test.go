package integration_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

var candidateBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rowlease-candidate")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "candidate")
	out, err := osexec.Command("go", "build", "-o", binary, "./internal/candidate").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the candidate: %w\n%s", err, out)
	}
	return binary, nil
})

// candidate is another process that campaigns.
type candidate struct {
	worker
	input io.WriteCloser
}

func startCandidate(t *testing.T, args ...string) candidate {
	t.Helper()
	binary, err := candidateBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(binary, args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c := candidate{follow(t, cmd), input}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		for range c.lines { // read to the end before Wait closes the pipe
		}
		_ = cmd.Wait()
	})
	return c
}

// said is what a candidate says: an event of a term, and when it was.
type said struct {
	what  string
	token int64
	at    int64 // ns on the machine's monotonic clock
}

// next returns the next line of the candidate.
func (c candidate) next(t *testing.T, what string) (s said) {
	t.Helper()
	if _, err := fmt.Sscan(c.line(t, what), &s.what, &s.token, &s.at); err != nil {
		t.Fatal(err)
	}
	return s
}

func machineClock(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano()
}

// Candidates in four processes lead one after another, while they resign and are killed: each has stopped, or was killed,
// before the next one starts.
func TestProcessesLeadOneAfterAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	rounds := 12
	if stress {
		rounds = 1000
	}
	dsn := migrated(t, postgres.Shared(t))
	type line struct {
		said
		of candidate
	}
	lines := make(chan line)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	join := func() {
		c := startCandidate(t, "-dsn", dsn)
		go func() {
			for text := range c.lines {
				l := line{of: c}
				if _, err := fmt.Sscan(text, &l.what, &l.token, &l.at); err != nil {
					l.what = text
				}
				select {
				case lines <- l:
				case <-ended:
				}
			}
		}()
	}
	for range 4 {
		join()
	}
	next := func(what string) (l line) {
		select {
		case l = <-lines:
		case <-time.After(2 * time.Minute):
			t.Fatal(what)
		}
		return l
	}
	starts, ends := make(map[int64]int64), make(map[int64]int64)
	for round := 0; round < rounds; {
		switch l := next("nobody leads"); l.what {
		case "stopped":
			ends[l.token] = l.at
		case "started":
			starts[l.token] = l.at
			round++
			time.Sleep(rand.N(20 * time.Millisecond)) // anywhere in its work: nothing depends on how long
			if round%5 == 0 {
				ends[l.token] = machineClock(t)
				if err := l.of.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				join()
			} else if _, err := fmt.Fprintln(l.of.input); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("a candidate says %q", l.what)
		}
	}
	tokens := slices.Sorted(maps.Keys(starts))
	if len(tokens) != rounds {
		t.Errorf("there were %d terms in %d rounds", len(tokens), rounds)
	}
	for i, token := range tokens[1:] {
		before := tokens[i]
		for ends[before] == 0 { // said by another process, whose line may come later
			if l := next(fmt.Sprintf("term %d does not stop", before)); l.what == "stopped" {
				ends[l.token] = l.at
			}
		}
		if starts[token] <= ends[before] {
			t.Errorf("term %d started at %d, term %d stopped at %d", token, starts[token], before, ends[before])
		}
	}
}

// A leader whose process is stopped learns of nothing, and others lead meanwhile: that is the exception. What it writes when it
// runs again is refused by its token.
func TestAStoppedLeaderIsRefusedByItsToken(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	db := open(t, "pgx", dsn)
	exec(t, db, "CREATE TABLE ledger AS SELECT 0::bigint AS token")
	first := startCandidate(t, "-dsn", dsn, "-writes")
	old := first.next(t, "started")
	first.next(t, "wrote")
	first.signal(t, syscall.SIGSTOP)

	second := startCandidate(t, "-dsn", dsn, "-writes")
	term := second.next(t, "started")
	if term.token <= old.token {
		t.Errorf("term %d follows term %d", term.token, old.token)
	}
	second.next(t, "wrote")
	first.signal(t, syscall.SIGCONT)
	if refused := first.next(t, "refused"); refused.token != old.token {
		t.Errorf("refused was term %d, want %d", refused.token, old.token)
	}
	if stopped := first.next(t, "stopped"); stopped.at <= term.at {
		t.Errorf("it stopped at %d, before the next one started at %d: the test shows nothing", stopped.at, term.at)
	}
	if token := scan[int64](t, db, "SELECT token FROM ledger"); token < term.token {
		t.Errorf("the ledger has token %d, want %d or a newer one", token, term.token)
	}
}
