package bounded

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

func TestDo(t *testing.T) {
	t.Parallel()
	fault := errors.New("fault")
	never := func(int) { t.Error("an answer in time was late") }
	if got, err := Do(t.Context(), func() (int, error) { return 7, nil }, never); got != 7 || err != nil {
		t.Errorf("Do = %d, %v, want 7", got, err)
	}
	if _, err := Do(t.Context(), func() (int, error) { return 7, fault }, never); !errors.Is(err, fault) {
		t.Errorf("Do = %v, want the fault", err)
	}
	panicked := func() (p any) {
		defer func() { p = recover() }()
		_, _ = Do(t.Context(), func() (int, error) { panic("boom") }, never)
		return nil
	}()
	if panicked != "boom" {
		t.Errorf("the caller recovered %v, want work's panic", panicked)
	}
	if _, err := Do(t.Context(), func() (int, error) { runtime.Goexit(); return 7, nil }, never); err == nil {
		t.Error("Do = nil for work that has ended its goroutine")
	}
}

// The context's end is told while work still hangs; what it comes to then is late, unless it failed.
func TestDoOfWhatHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	hang, late := make(chan struct{}), make(chan int, 1)
	cancel()
	if _, err := Do(ctx, func() (int, error) { <-hang; return 7, nil }, func(n int) { late <- n }); !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v, want Canceled", err)
	}
	close(hang)
	if got := <-late; got != 7 {
		t.Errorf("late = %d, want 7", got)
	}
}
