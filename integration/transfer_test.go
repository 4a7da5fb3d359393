package integration_test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// stress asks for the long forms of the tests that look for rare events: ROWLEASE_STRESS=1.
var stress = os.Getenv("ROWLEASE_STRESS") != ""

// transfers is what the processes of one run have in common.
type transfers struct {
	guard                 bool
	goroutines, transfers int // of each of the four processes
	accounts, pauseEvery  int
}

// Four processes move money between accounts, and pause between reading and writing for longer than their leases last.
// With the guard no write of a superseded holder is accepted, and no update is lost.
func TestTransfersWithTheGuard(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	run := transfers{guard: true, goroutines: 4, transfers: 50, accounts: 30, pauseEvery: 20}
	if stress {
		run = transfers{guard: true, goroutines: 8, transfers: 2500, accounts: 60, pauseEvery: 20}
	}
	db, refused := run.run(t)
	if refused == 0 {
		t.Error("no transfer was refused: the guard had nothing to do, so that this says nothing of it")
	}
	for _, damage := range damages(t, db) {
		t.Error(damage)
	}
}

// The same without the guard does damage: so the test above would see some.
func TestTransfersWithoutTheGuard(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds")
	}
	t.Parallel()
	run := transfers{goroutines: 2, transfers: 20, accounts: 20, pauseEvery: 10}
	if stress {
		run = transfers{goroutines: 8, transfers: 250, accounts: 60, pauseEvery: 20}
	}
	db, _ := run.run(t)
	found := damages(t, db)
	if len(found) == 0 {
		t.Error("a holder was superseded by another process that wrote, wrote all the same, and no damage was found")
	}
	t.Logf("without the guard: %s", strings.Join(found, "; "))
}

const startBalance = 10_000

// run makes the transfers, and returns the bank's database and how many writes were refused. The first process holds
// account 1 first, and writes when the second has taken it over and written.
func (c transfers) run(t *testing.T) (db *bun.DB, refused int) {
	t.Helper()
	dsn := migrated(t, postgres.Shared(t))
	db = open(t, "pgx", dsn)
	db.SetMaxOpenConns(1)
	exec(t, db, "CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL, writes bigint NOT NULL DEFAULT 0)")
	exec(t, db, "INSERT INTO accounts SELECT i, ? FROM generate_series(1, ?) AS i", startBalance, c.accounts)
	exec(t, db, `CREATE TABLE ledger (account int, number bigint, token bigint NOT NULL, process int NOT NULL, amount bigint NOT NULL,
		PRIMARY KEY (account, number))`)
	began := time.Now()
	processes := make([]worker, 4)
	for i := range processes {
		processes[i] = startTransfers(t, "-dsn", dsn, "-process", strconv.Itoa(i), "-guard="+strconv.FormatBool(c.guard),
			"-goroutines", strconv.Itoa(c.goroutines), "-transfers", strconv.Itoa(c.transfers), "-accounts", strconv.Itoa(c.accounts),
			"-pause-every", strconv.Itoa(c.pauseEvery), "-late="+strconv.FormatBool(i == 0), "-first="+strconv.FormatBool(i == 1))
		if i == 0 {
			processes[i].line(t, "read")
		}
	}
	var done, paused int
	for _, process := range processes {
		for line := range process.lines {
			var d, r, p int
			if _, err := fmt.Sscanf(line, "done %d refused %d paused %d", &d, &r, &p); err != nil {
				t.Fatalf("a process says %q", line)
			}
			done, refused, paused = done+d, refused+r, paused+p
		}
	}
	if want := 4*c.transfers + 2; done != want {
		t.Fatalf("%d transfers were made, want %d", done, want)
	}
	if entries := scan[int](t, db, "SELECT count(*) FROM ledger"); entries != 2*done {
		t.Errorf("%d entries in the ledger for %d transfers", entries, done)
	}
	t.Logf("%d transfers in %v: %d paused, %d writes refused", done, time.Since(began).Round(10*time.Millisecond), paused, refused)
	return db, refused
}

// damages are the ways in which writes of superseded holders show.
func damages(t *testing.T, db *bun.DB) (found []string) {
	t.Helper()
	if sum, want := scan[int](t, db, "SELECT sum(balance)::bigint FROM accounts"), startBalance*scan[int](t, db, "SELECT count(*) FROM accounts"); sum != want {
		found = append(found, fmt.Sprintf("the balances add up to %d, want %d", sum, want))
	}
	if n := scan[int](t, db, `SELECT count(*) FROM accounts WHERE balance <>
		? + coalesce((SELECT sum(amount) FROM ledger WHERE account = accounts.id), 0)`, startBalance); n > 0 {
		found = append(found, fmt.Sprintf("%d balances are not what the ledger says: updates were lost", n))
	}
	if n := scan[int](t, db, `SELECT count(*) FROM (
		SELECT token, max(token) OVER (PARTITION BY account ORDER BY number) AS largest FROM ledger) AS l WHERE token < largest`); n > 0 {
		found = append(found, fmt.Sprintf("%d writes came after one with a larger token: their holders were superseded", n))
	}
	return found
}

var transferBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rowlease-transfer")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "transfer")
	out, err := osexec.Command("go", "build", "-o", binary, "./internal/transfer").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return binary, nil
})

// startTransfers starts a process that ends with the test, at the latest.
func startTransfers(t *testing.T, args ...string) worker {
	t.Helper()
	binary, err := transferBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(t.Context(), binary, args...)
	w := follow(t, cmd)
	t.Cleanup(func() { _ = cmd.Wait() }) // the context has ended it
	return w
}
