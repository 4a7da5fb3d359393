// Package process starts and leads other processes in which somebody waits: command waiter, beside it.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is how long an answer may take. It is generous: nothing is timed here.
const limit = 2 * time.Minute

// Process is another process. Say is safe for concurrent use, and so is each of the others; lines go to whoever asks first.
type Process struct {
	command *exec.Cmd
	input   io.Writer
	lines   chan string
	end     func()
}

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rowlease-waiter")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "waiter")
	out, err := exec.Command("go", "build", "-o", path, "github.com/rowlease/rowlease/integration/internal/waiter").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the waiter: %w\n%s", err, out)
	}
	return path, nil
})

// Start starts a process with these flags, which ends with the test.
func Start(tb testing.TB, flags ...string) *Process {
	tb.Helper()
	path, err := binary()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{command: exec.CommandContext(tb.Context(), path, flags...), lines: make(chan string, 1000)}
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if p.input, err = p.command.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	read, ended := make(chan struct{}), make(chan struct{})
	p.end = sync.OnceFunc(func() {
		close(ended)
		_ = p.command.Process.Kill()
		<-read
		_ = p.command.Wait()
	})
	tb.Cleanup(p.end)
	go func() {
		defer close(read)
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case p.lines <- scanner.Text():
			case <-ended: // nobody asks any more
			}
		}
	}()
	return p
}

// Kill ends the process, which may say no more.
func (p *Process) Kill() { p.end() }

// Say tells the process what to do.
func (p *Process) Say(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if _, err := fmt.Fprintf(p.input, format+"\n", args...); err != nil {
		tb.Fatalf("tell the waiter: %v", err)
	}
}

// Line returns what follows the given beginning, which the next line must have.
func (p *Process) Line(tb testing.TB, begin string) string {
	tb.Helper()
	line := p.next(tb, begin)
	rest, right := strings.CutPrefix(line, begin)
	if !right {
		tb.Fatalf("the waiter says %q, want %q", line, begin)
	}
	return strings.TrimSpace(rest)
}

// Until returns what follows the given beginning, which the next line but any number of others must have.
func (p *Process) Until(tb testing.TB, begin string) string {
	tb.Helper()
	for {
		line := p.next(tb, begin)
		if rest, right := strings.CutPrefix(line, begin); right {
			return strings.TrimSpace(rest)
		}
		if strings.HasPrefix(line, "error") {
			tb.Fatalf("the waiter says %q, want %q", line, begin)
		}
	}
}

// Instant is Until for a line that tells an instant, in ns.
func (p *Process) Instant(tb testing.TB, begin string) int64 {
	tb.Helper()
	at, err := strconv.ParseInt(p.Until(tb, begin), 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

func (p *Process) next(tb testing.TB, begin string) string {
	tb.Helper()
	select {
	case line, more := <-p.lines:
		if !more {
			tb.Fatalf("the waiter has ended, and was to say %q", begin)
		}
		return line
	case <-time.After(limit):
		tb.Fatalf("the waiter does not say %q within %v", begin, limit)
		return ""
	}
}

// Silent reports whether the process has said nothing that was not asked for yet.
func (p *Process) Silent() bool { return len(p.lines) == 0 }

// Signal sends the process a signal.
func (p *Process) Signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		tb.Fatalf("%v to the waiter: %v", signal, err)
	}
}
