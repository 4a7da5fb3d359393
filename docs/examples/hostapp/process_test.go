package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const password = "only-for-tests"

// program is the path of the built application. It is built as the tests are, with the race detector or without: a
// race then ends it with a status that no test expects.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "hostapp")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "hostapp")
		args := []string{"build", "-buildvcs=false", "-o", program}
		if raceEnabled {
			args = append(args, "-race")
		}
		if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// databaseURL is a fresh SQLite file, or the database that all tests share: then only names are fresh.
func databaseURL(t *testing.T) string {
	t.Helper()
	if dsn := os.Getenv("ROWLEASE_POSTGRES_DSN"); strings.HasPrefix(dsn, "postgres") {
		return dsn
	}
	return "file:" + filepath.Join(t.TempDir(), "payments.db")
}

// process is the application, running.
type process struct {
	cmd     *exec.Cmd
	url     string
	welcome string
	log     *safeBuffer
	exited  chan struct{} // closed when it has
	err     error         // what it exited with
}

var (
	starting  sync.Mutex // a shared database is migrated by one process at a time
	listening = regexp.MustCompile(`msg=listening address=(\S+)`)
)

// start runs the application on a free port until the test ends. More environment overrides the usual one.
func start(t *testing.T, database string, environment ...string) *process {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()

	p := &process{cmd: exec.Command(program), log: new(safeBuffer), exited: make(chan struct{})}
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append(os.Environ(), "ADDR=127.0.0.1:0", "DATABASE_URL="+database, "ADMIN_PASSWORD="+password)
	p.cmd.Env = append(p.cmd.Env, environment...)
	stdout := new(safeBuffer)
	p.cmd.Stdout = stdout
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(p.log, lines.Text())
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("log of the application:\n%s", p.log)
		}
	})
	select {
	case found := <-address:
		p.url = "http://" + found
	case <-p.exited:
		t.Fatalf("the application exited at its start: %v\n%s", p.err, p.log)
	case <-time.After(30 * time.Second):
		t.Fatal("the application does not listen after 30 s")
	}
	eventually(t, func() bool { return strings.Contains(stdout.String(), "/admin/locks") })
	p.welcome = stdout.String()
	return p
}

// signal sends it, and returns how long the process took to exit, and with what.
func (p *process) signal(t *testing.T, s os.Signal) (time.Duration, error) {
	t.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
		return time.Since(began), p.err
	case <-time.After(30 * time.Second):
		t.Fatalf("still running 30 s after %v", s)
		return 0, nil
	}
}

// kill is kill -9: nothing of the process gets to run any more.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
}

// answer is what the application said.
type answer struct {
	status int
	header http.Header
	body   string
}

// json returns the body's members.
func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(a.body), &members); err != nil {
		t.Fatalf("status %d, body is no JSON object: %v: %q", a.status, err, a.body)
	}
	return members
}

// ask sends a request; header is pairs of a name and a value. A body is sent as JSON unless the header says otherwise.
func (p *process) ask(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if strings.HasPrefix(path, "/admin") && r.Header.Get("Authorization") == "" {
		r.SetBasicAuth("admin", password)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// must is ask where an answer of that status must come.
func (p *process) must(t *testing.T, status int, method, path, body string, header ...string) answer {
	t.Helper()
	got, err := p.ask(t.Context(), method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if got.status != status {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, got.status, status, got.body)
	}
	return got
}

// pay asks for a payment.
func (p *process) pay(ctx context.Context, key, work string) (answer, error) {
	return p.ask(ctx, http.MethodPost, "/payments?work="+work, `{"amount":100}`, "Idempotency-Key", key)
}

// result is a payment's answer, once it has come.
type result struct {
	answer
	err   error
	after time.Duration
}

// payInBackground begins a payment and returns when its lease is held.
func (p *process) payInBackground(t *testing.T, key, work string) <-chan result {
	t.Helper()
	results := make(chan result, 1)
	began := time.Now()
	go func() {
		got, err := p.pay(t.Context(), key, work)
		results <- result{got, err, time.Since(began)}
	}()
	eventually(t, func() bool { return p.leaseOf(t, key) != nil })
	return results
}

// leaseOf returns the payment's lease as operators see it, or nil.
func (p *process) leaseOf(t *testing.T, key string) map[string]any {
	t.Helper()
	listed := p.must(t, http.StatusOK, http.MethodGet, "/admin/locks?limit=1000", "").json(t)
	for _, lock := range listed["locks"].([]any) {
		if lock := lock.(map[string]any); strings.HasSuffix(lock["resource"].(string), key) {
			return lock
		}
	}
	return nil
}

// fresh returns a name that no other test uses, in a shared database either.
func fresh(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:10]) }

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come about in 20 s")
		}
	}
}

// safeBuffer collects output that is read while it is written.
type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
