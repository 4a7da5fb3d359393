//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rowlease/rowlease/bunstore"
)

const (
	start = 100 // what the account holds
	payA  = 30  // by the worker that is stopped
	payB  = 50  // by the one that takes over
)

// runScenario runs both workers, and looks at the books. Nothing waits for a time to pass but worker B, for the end of the
// lease that it takes over: it asks the database.
func runScenario(ctx context.Context, c config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // the workers are killed then, the stopped one too
	defer cancel()
	if c.databaseURL == "" {
		dir, err := os.MkdirTemp("", "rowlease-guard")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the program ends
		c.databaseURL = "file:" + filepath.Join(dir, "bank.db")
	}
	db, err := openDatabase(c.databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := bunstore.Migrate(ctx, db); err != nil {
		return err
	}
	if c.account, err = newAccount(ctx, db, start); err != nil {
		return err
	}
	fmt.Printf("the account holds %d\n", start)

	said, err := takeOver(ctx, c)
	if err != nil {
		return err
	}

	balance, entries, err := books(ctx, db, c.account)
	if err != nil {
		return err
	}
	refused := strings.HasPrefix(said, "refused")
	switch {
	case c.guard && refused && balance == start+payB && entries == balance:
		fmt.Printf("right: the balance is %d, and so say the entries; A's late write was refused\n", balance)
	case !c.guard && !refused && balance == start+payA && entries == start+payA+payB:
		fmt.Printf("wrong: the balance is %d, but the entries say %d; A's late write was accepted, and B's payment is lost\n", balance, entries)
	default:
		return fmt.Errorf("not as expected: the balance is %d, the entries say %d, A said %q", balance, entries, said)
	}
	return nil
}

// takeOver stops worker A past the end of its lease, and wakes it when B has taken over and written. It returns what A says
// of its late write.
func takeOver(ctx context.Context, c config) (said string, err error) {
	a, err := startWorker(ctx, c, "A", payA, time.Second)
	if err != nil {
		return "", err
	}
	defer a.end()
	if _, err := a.says("acquired", "read"); err != nil {
		return "", err
	}
	if err := a.stop(); err != nil {
		return "", err
	}
	fmt.Println("A is stopped (SIGSTOP); B waits until the lease has ended")

	b, err := startWorker(ctx, c, "B", payB, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer b.end()
	if _, err := b.says("acquired", "read"); err != nil {
		return "", err
	}
	if err := b.goOn(); err != nil {
		return "", err
	}
	if _, err := b.says("wrote"); err != nil {
		return "", err
	}

	// A finds the line when it wakes: it has no moment to itself before it writes.
	if err := a.goOn(); err != nil {
		return "", err
	}
	fmt.Println("A is woken (SIGCONT), and writes")
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	return a.says("")
}
