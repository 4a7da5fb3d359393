package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

func TestLeftBehind(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	lately, longAgo := time.Now().Add(-time.Minute), time.Now().Add(-2*time.Hour)

	tests := []struct {
		name    string
		owner   string
		created time.Time
		want    bool
	}{
		{"our own", ownLabels()[ownerLabel], lately, false},
		{"our own, a long benchmark", ownLabels()[ownerLabel], longAgo, false},
		{"process gone", fmt.Sprintf("%s %d %s", host, ended.Process.Pid, "1"), lately, true},
		{"process number used again", fmt.Sprintf("%s %d %s", host, self, "1"), lately, true},
		{"other machine, young", "elsewhere 1 1", lately, false},
		{"other machine, old", "elsewhere 1 1", longAgo, true},
		{"no owner, young", "", lately, false},
		{"no owner, old", "", longAgo, true},
		{"unreadable owner", host + " x 1", lately, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := leftBehind(tt.owner, tt.created); got != tt.want {
				t.Errorf("leftBehind(%q, %s ago) = %v, want %v", tt.owner, time.Since(tt.created).Round(time.Minute), got, tt.want)
			}
		})
	}
}

// A process that was killed stays in the process table until its parent looks, and
// where the parent is gone too that may take a while.
func TestLeftBehindByZombie(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not tested: only Linux's /proc tells a zombie from a live process")
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat") // lives until its input ends
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	owner := fmt.Sprintf("%s %d %s", host, cmd.Process.Pid, processStart(cmd.Process.Pid))
	if leftBehind(owner, time.Now()) {
		t.Errorf("leftBehind(%q) for a live process", owner)
	}

	stdin.Close()
	deadline := time.Now().Add(10 * time.Second)
	for !leftBehind(owner, time.Now()) {
		if time.Now().After(deadline) {
			t.Fatalf("leftBehind(%q) is false for a process that has ended", owner)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDatabaseName(t *testing.T) {
	a, b := databaseName("TestLease/Ünïcode \"quoted\""), databaseName("TestLease/Ünïcode \"quoted\"")
	if a == b {
		t.Errorf("%q twice", a)
	}
	long := databaseName("Test" + string(make([]byte, 200)))
	if len(long) > 63 {
		t.Errorf("%q has %d bytes, PostgreSQL keeps 63", long, len(long))
	}
}

func TestCommandIsStable(t *testing.T) {
	got := newSettings([]Option{Durable(), Setting("work_mem", "1MB")}).command()
	want := []string{"postgres", "-c", "fsync=on", "-c", "full_page_writes=on", "-c", "max_connections=200", "-c", "work_mem=1MB"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("command = %v, want %v", got, want)
	}
}
