package call

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDoReturnsTheAnswer(t *testing.T) {
	got, err := Do(t.Context(), time.Second, func(context.Context) (int, error) { return 7, nil }, nil)
	if got != 7 || err != nil {
		t.Fatalf("Do = %d, %v; want 7, nil", got, err)
	}
}

func TestDoDoesNotStartUnderAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Do(ctx, time.Second, func(context.Context) (int, error) { t.Error("fn was run"); return 0, nil }, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v, want context.Canceled", err)
	}
}

// A driver that ignores its context holds up nobody, and its answer reaches late, once.
func TestDoGivesUpOnAHungCall(t *testing.T) {
	for name, limit := range map[string]time.Duration{"limit first": time.Second, "context first": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				release, late := make(chan struct{}), make(chan int, 2)
				start := time.Now()
				_, err := Do(ctx, limit, func(context.Context) (int, error) { <-release; return 9, nil },
					func(value int, _ error) { late <- value })
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("err = %v, want context.DeadlineExceeded", err)
				}
				if waited := time.Since(start); waited != min(limit, time.Minute) {
					t.Errorf("gave up after %v, want %v", waited, min(limit, time.Minute))
				}
				close(release)
				if got := <-late; got != 9 {
					t.Errorf("late got %d, want 9", got)
				}
			})
		})
	}
}

func TestDoTurnsAPanicIntoAnError(t *testing.T) {
	_, err := Do(t.Context(), time.Second, func(context.Context) (int, error) { panic("boom") }, nil)
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "boom" || len(p.Stack) == 0 {
		t.Fatalf("err = %#v, want a PanicError with value and stack", err)
	}
}
