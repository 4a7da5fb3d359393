package lockstest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// TestNoFault: the store that the faults are put into keeps every promise without one.
func TestNoFault(t *testing.T) {
	t.Parallel()
	t.Run("many writers", func(t *testing.T) { Run(t, faultyHarness("")) })
	t.Run("one writer", func(t *testing.T) { Run(t, faultyHarness("one writer: ")) })
}

// TestFaults puts one fault at a time into a store, and wants the promises that the fault breaks to say so. Every
// promise must be broken by one fault at least: what no fault breaks is no evidence.
func TestFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bitten := map[string]bool{}
	t.Run("fault", func(t *testing.T) {
		for _, f := range slices.Concat(faults(), txFaults(), queueFaults(), shareFaults()) {
			t.Run(f.fault, func(t *testing.T) {
				t.Parallel()
				for _, pattern := range f.breaks {
					found := 0
					for _, s := range suite() {
						for _, p := range s.promises {
							name := s.name + "/" + p.name
							prefix, open := strings.CutSuffix(pattern, "*")
							if name != pattern && (!open || !strings.HasPrefix(name, prefix)) {
								continue
							}
							found++
							if !noticed(t, p, f.fault) {
								t.Errorf("not noticed by %q", name)
							}
							mu.Lock()
							bitten[name] = true
							mu.Unlock()
						}
					}
					if found == 0 {
						t.Errorf("no promise is named %q", pattern)
					}
				}
			})
		}
	})
	for _, s := range suite() {
		for _, p := range s.promises {
			if name := s.name + "/" + p.name; !bitten[name] {
				t.Errorf("no fault breaks %q", name)
			}
		}
	}
}

// TestSkips: a store and a harness that can do no more than they must fail nothing, and each promise left out says so.
func TestSkips(t *testing.T) {
	t.Parallel()
	full := faultyHarness("")
	least := Harness{
		Open: func(tb testing.TB, n int) []locks.Store {
			tb.Helper()
			stores := full.Open(tb, n)
			for i, store := range stores {
				stores[i] = bare{store}
			}
			return stores
		},
		Expire: func(tb testing.TB, store locks.Store, resource string) {
			tb.Helper()
			full.Expire(tb, store.(bare).Store, resource)
		},
	}
	skipped := map[string]int{}
	for _, s := range suite() {
		for _, p := range s.promises {
			r := record(t, p, least)
			if r.failed {
				t.Errorf("%s/%s fails:\n%s", s.name, p.name, r.log.String())
			}
			if r.skipped {
				skipped[s.name]++
				if !strings.Contains(r.log.String(), "not tested: ") {
					t.Errorf("%s/%s is skipped without a word: %q", s.name, p.name, r.log.String())
				}
			}
		}
	}
	want := map[string]int{
		"Late": 8, "Tokens": 4, "Names": 1, "List": 7, "Purge": 3, "Force": 4,
		"All": 6, "InTx": 5, "Tx": 5, "TxAcquire": 13, "TxRenew": 4, "TxRelease": 4, "Guard": 10,
		"Queue": 7, "QueueRule": 7, "QueueTurn": 13, "QueueCrowd": 9, "Waiting": 3,
		"Share": 8, "ShareEnd": 9, "ShareSeen": 6, "ShareCount": 6, "ShareGuard": 10, "ShareQueue": 13, "ShareContention": 7,
	}
	if !maps.Equal(skipped, want) {
		t.Errorf("skipped %v, want %v", skipped, want)
	}
}

// bare hides what a store can do beyond what it must.
type bare struct{ locks.Store }

// noticed reports whether the promise fails for the fault in one of a few runs: races and random calls may miss it in
// one.
func noticed(tb testing.TB, p promise, fault string) bool {
	tb.Helper()
	for range 25 {
		if record(tb, p, faultyHarness(fault)).failed {
			return true
		}
	}
	return false
}

// recorder is a testing.TB that notes a failure and passes it on to nobody.
type recorder struct {
	testing.TB
	mu              sync.Mutex
	failed, skipped bool
	log             strings.Builder
	cleanups        []func()
}

// record runs a promise apart from the test that asks.
func record(tb testing.TB, p promise, h Harness) *recorder {
	tb.Helper()
	r := &recorder{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		defer func() {
			if panicked := recover(); panicked != nil {
				r.Errorf("panic: %v", panicked)
			}
		}()
		c := newCheck(r, h, p.stores)
		c.patience = 500 * time.Millisecond
		p.test(c)
	}()
	<-done
	return r
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	fmt.Fprintln(&r.log, text)
}

// Cleanup is for the end of the promise, not of the test that asks.
func (r *recorder) Cleanup(fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, fn)
}

func (r *recorder) cleanUp() {
	for _, fn := range slices.Backward(r.cleanups) {
		fn()
	}
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.note(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) FailNow()                          { r.Fatal("FailNow") }
func (r *recorder) Skip(args ...any)                  { r.Skipf("%s", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.note(false, fmt.Sprintf(format, args...))
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
