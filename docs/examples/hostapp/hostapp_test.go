package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The scenario of the front page, as a program meets it.
func TestScenario(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t))
	key, job := fresh("a1"), "/locks/"+fresh("job:42")

	first := app.payInBackground(t, key, "2s")
	began := time.Now()
	refused := app.must(t, http.StatusLocked, http.MethodPost, "/payments?work=2s", `{"amount":100}`, "Idempotency-Key", key)
	if took := time.Since(began); took > time.Second {
		t.Errorf("refused after %v, want at once", took)
	}
	if got := refused.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type of a refusal = %q", got)
	}
	if got := refused.header.Get("Retry-After"); got == "" || got == "0" {
		t.Errorf("Retry-After of a refusal = %q", got)
	}
	made := <-first
	if made.err != nil || made.status != http.StatusCreated {
		t.Fatalf("the payment: status %d, error %v: %s", made.status, made.err, made.body)
	}
	if made.after < 2*time.Second {
		t.Errorf("the payment took %v, want 2 s", made.after)
	}
	if got := made.json(t); got["amount"] != 100.0 || got["idempotency_key"] != key {
		t.Errorf("the payment = %s", made.body)
	}
	if lease := app.leaseOf(t, key); lease != nil {
		t.Errorf("still held after the answer: %v", lease)
	}

	got := app.must(t, http.StatusOK, http.MethodPost, job, `{"owner":"w1","ttl_seconds":30}`).json(t)
	if got["acquired"] != true {
		t.Errorf("first owner: %v", got)
	}
	got = app.must(t, http.StatusOK, http.MethodPost, job, `{"owner":"w2","ttl_seconds":30}`).json(t)
	if got["acquired"] != false {
		t.Errorf("second owner: %v", got)
	}
	app.must(t, http.StatusForbidden, http.MethodDelete, job+"?owner=w2", "")
	app.must(t, http.StatusNoContent, http.MethodDelete, job+"?owner=w1", "")
	app.must(t, http.StatusNotFound, http.MethodDelete, job+"?owner=w1", "")
}

// The lines that the application prints at its start work as they are printed.
func TestWelcomeLines(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("not tested: the printed lines (no %s here)", tool)
		}
	}
	app := start(t, databaseURL(t))
	var script strings.Builder
	for line := range strings.Lines(app.welcome) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			if background, ok := strings.CutSuffix(line, " &"); ok {
				line = "(" + background + " >first.txt) & sleep 2" // a person takes a moment, too
			}
			script.WriteString(line + "\necho\n")
		}
	}
	script.WriteString("wait; cat first.txt\n")
	renamed := strings.NewReplacer("Idempotency-Key: a1", "Idempotency-Key: "+fresh("a1"), "job:42", fresh("job:42")).Replace(script.String())

	shell := exec.Command("sh", "-c", renamed)
	shell.Dir, shell.Env = t.TempDir(), append(os.Environ(), "ADMIN_PASSWORD="+password)
	output, err := shell.Output() // without curl's progress
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	rest := string(output)
	for _, want := range []string{
		"HTTP/1.1 423 Locked", "application/problem+json", "Retry-After: ",
		`"acquired":true`, `"acquired":false`, "HTTP/1.1 403 Forbidden", "HTTP/1.1 204 No Content", `{"locks":[`, "HTTP/1.1 201 Created",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("no %s, or not in its place:\n%s", want, output)
		}
		rest = after
	}
}

// Without ADMIN_PASSWORD the application makes one, and tells it where a person sees it: not in the log.
func TestMadePassword(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t), "ADMIN_PASSWORD=")
	_, made, _ := strings.Cut(app.welcome, "-u admin:")
	made, _, _ = strings.Cut(made, " ")
	if len(made) < 20 {
		t.Fatalf("made password = %q", made)
	}
	if strings.Contains(app.log.String(), made) {
		t.Error("the log has the password")
	}
	app.must(t, http.StatusOK, http.MethodGet, "/admin/locks", "", "Authorization", basic("admin", made))
	app.must(t, http.StatusUnauthorized, http.MethodGet, "/admin/locks", "")
}

// A lease serialises; the table deduplicates.
func TestRepeatedPayment(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t))
	key := fresh("again")

	first := app.must(t, http.StatusCreated, http.MethodPost, "/payments", `{"amount":100}`, "Idempotency-Key", key)
	again := app.must(t, http.StatusCreated, http.MethodPost, "/payments", `{"amount":100}`, "Idempotency-Key", key)
	if first.json(t)["id"] != again.json(t)["id"] {
		t.Errorf("two payments for one key: %s, %s", first.body, again.body)
	}
	if got := again.header.Get("Idempotent-Replayed"); got != "true" {
		t.Errorf("Idempotent-Replayed = %q", got)
	}
	app.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/payments", `{"amount":200}`, "Idempotency-Key", key)
}

// Whoever waits for a graceful stop gets an answer, and the next process finds nothing held.
func TestTerminateFreesLeases(t *testing.T) {
	t.Parallel()
	database := databaseURL(t)
	app := start(t, database)
	short, long := fresh("short"), fresh("long")
	finishing, stopped := app.payInBackground(t, short, "1500ms"), app.payInBackground(t, long, "50s")

	took, err := app.signal(t, syscall.SIGTERM)
	if err != nil {
		t.Errorf("exit: %v", err)
	}
	if took > 10*time.Second {
		t.Errorf("exited after %v", took)
	}
	if got := <-finishing; got.err != nil || got.status != http.StatusCreated {
		t.Errorf("a payment that ends within the grace period: status %d, error %v: %s", got.status, got.err, got.body)
	}
	if got := <-stopped; got.err != nil || got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a payment that was cut short: status %d, error %v: %s", got.status, got.err, got.body)
	}

	next := start(t, database)
	for _, key := range []string{short, long} {
		if lease := next.leaseOf(t, key); lease != nil {
			t.Errorf("still held: %v", lease)
		}
	}
	got := next.must(t, http.StatusCreated, http.MethodPost, "/payments", `{"amount":100}`, "Idempotency-Key", long)
	if got.header.Get("Idempotent-Replayed") != "" {
		t.Error("the payment that was cut short left a row")
	}
}

// kill -9 inside a handler: the next request gets in after the TTL, not before.
func TestKilledInHandler(t *testing.T) {
	t.Parallel()
	database := databaseURL(t)
	const ttl = 3 * time.Second
	doomed := start(t, database, "LEASE_TTL="+ttl.String())
	other := start(t, database, "LEASE_TTL="+ttl.String())
	key := fresh("killed")
	doomed.payInBackground(t, key, "50s")

	doomed.kill(t)
	killed := time.Now()
	lease := other.leaseOf(t, key)
	if lease == nil {
		t.Fatal("a killed process freed its lease")
	}
	ends, err := time.Parse(time.RFC3339, lease["expires_at"].(string))
	if err != nil {
		t.Fatal(err)
	}

	refused := 0
	for {
		got, err := other.pay(t.Context(), key, "0s")
		if err != nil {
			t.Fatal(err)
		}
		if got.status == http.StatusCreated {
			if got.header.Get("Idempotent-Replayed") != "" {
				t.Error("the killed payment left a row")
			}
			break
		}
		if got.status != http.StatusLocked {
			t.Fatalf("status %d: %s", got.status, got.body)
		}
		if refused++; time.Since(killed) > ttl+10*time.Second {
			t.Fatalf("still held %v after the kill", time.Since(killed))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if refused == 0 {
		t.Error("the resource of a killed process was free at once")
	}
	// Both clocks are this machine's, unless the database is somewhere else.
	if early := time.Until(ends); strings.HasPrefix(database, "file:") && early > 50*time.Millisecond {
		t.Errorf("let in %v before the lease's end", early)
	}
	if late := time.Since(ends); strings.HasPrefix(database, "file:") && late > 5*time.Second {
		t.Errorf("let in %v after the lease's end", late)
	}
}

// A process that sleeps past its lease cannot be told so while it sleeps. When it wakes, its payment is refused.
func TestPausedInHandler(t *testing.T) {
	t.Parallel()
	database := databaseURL(t)
	sleeper, other := start(t, database, "LEASE_TTL=1500ms"), start(t, database, "LEASE_TTL=1500ms")
	key := fresh("paused")
	working := sleeper.payInBackground(t, key, "1s")

	if err := sleeper.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var made answer
	eventually(t, func() bool {
		var err error
		made, err = other.pay(t.Context(), key, "0s")
		return err == nil && made.status == http.StatusCreated
	})
	if err := sleeper.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	if got := <-working; got.err != nil || got.status != http.StatusServiceUnavailable {
		t.Errorf("the payment that slept: status %d, error %v: %s", got.status, got.err, got.body)
	}
	again := other.must(t, http.StatusCreated, http.MethodPost, "/payments", `{"amount":100}`, "Idempotency-Key", key)
	if again.json(t)["id"] != made.json(t)["id"] {
		t.Errorf("two payments for one key: %s, %s", made.body, again.body)
	}
}

// An operator ends a lease under its holder: the work stops, nothing is written.
func TestForcedRelease(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t), "LEASE_TTL=1500ms")
	key := fresh("forced")
	working := app.payInBackground(t, key, "50s")

	lease := app.leaseOf(t, key)
	resource := "/admin/locks/" + url.PathEscape(lease["resource"].(string))
	token := strconv.FormatFloat(lease["token"].(float64), 'f', -1, 64)
	app.must(t, http.StatusPreconditionRequired, http.MethodDelete, resource, "")
	app.must(t, http.StatusOK, http.MethodDelete, resource+"?reason=stuck", "", "If-Match", `"`+token+`"`)

	got := <-working
	if got.err != nil || got.status != http.StatusServiceUnavailable {
		t.Errorf("the payment whose lease was taken: status %d, error %v: %s", got.status, got.err, got.body)
	}
	next := app.must(t, http.StatusCreated, http.MethodPost, "/payments", `{"amount":100}`, "Idempotency-Key", key)
	if next.header.Get("Idempotent-Replayed") != "" {
		t.Error("the payment whose lease was lost left a row")
	}
	if !strings.Contains(app.log.String(), "force release") {
		t.Error("no line in the log about the force release")
	}
}

// A client that hangs up ends its payment and frees its key.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	app := start(t, databaseURL(t))
	key := fresh("gone")
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := app.pay(ctx, key, "50s")
		done <- err
	}()
	eventually(t, func() bool { return app.leaseOf(t, key) != nil })
	hangUp()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("the request ended with %v", err)
	}
	eventually(t, func() bool { return app.leaseOf(t, key) == nil })
}
