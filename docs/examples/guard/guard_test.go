//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The program with its guard refuses the late write, and without it shows the damage; its last line says which.
func TestGuard(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "guard")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, test := range []struct{ name, flag, written, last string }{
		{
			"with the guard", "-guard=true", "\nA: refused: locks: lease is lost",
			"right: the balance is 150, and so say the entries; A's late write was refused",
		},
		{
			"without", "-guard=false", "\nA: wrote the balance, 130\n",
			"wrong: the balance is 130, but the entries say 180; A's late write was accepted, and B's payment is lost",
		},
	} {
		t.Run(test.name, func(t *testing.T) { // one at a time: both would make the tables of a shared database
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, test.flag)
			// A database of the machine's that others use too, or a file of the program's own.
			cmd.Env = append(os.Environ(), "DATABASE_URL="+os.Getenv("ROWLEASE_POSTGRES_DSN"))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, &stderr)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("the last line is %q, want %q", last, test.last)
			}
			for _, want := range []string{
				"the account holds 100\nA: acquired the account's lease under token ", "\nB: wrote the balance, 150\n", test.written,
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q is not in the output:\n%s", want, out)
				}
			}
		})
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"more"}, {"-role=boss"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) has no error", args)
		}
	}
}
