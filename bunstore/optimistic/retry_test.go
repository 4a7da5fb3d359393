package optimistic_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/locks"
)

var errConflict = &optimistic.ConflictError{Table: "accounts", Read: 3, Current: 4}

func TestRetryRunsUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries int
		err := optimistic.Retry(t.Context(), func(context.Context) error {
			tries++
			switch tries {
			case 1:
				return fmt.Errorf("transfer: %w", errConflict)
			case 2:
				return locks.ErrBusy
			case 3:
				return locks.ErrSerialization
			}
			return nil
		})
		if err != nil || tries != 4 {
			t.Errorf("Retry = %v after %d tries, want nil after 4", err, tries)
		}
	})
}

func TestRetryGivesUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		options []optimistic.RetryOption
		bounds  []time.Duration // of the pauses, in ms
	}{
		{"defaults", nil, []time.Duration{5, 10, 20, 40, 80, 160, 320, 500, 500}},
		{"one try", []optimistic.RetryOption{optimistic.WithTries(1)}, nil},
		{"other bounds", []optimistic.RetryOption{
			optimistic.WithTries(4), optimistic.WithBackoff(30*time.Millisecond, 70*time.Millisecond),
		}, []time.Duration{30, 60, 70}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			err := optimistic.Retry(t.Context(), func(context.Context) error {
				at = append(at, time.Now())
				return errConflict
			}, test.options...)

			var gaveUp *optimistic.RetryError
			if !errors.As(err, &gaveUp) || gaveUp.Tries != len(test.bounds)+1 || gaveUp.Cause != nil || gaveUp.Last != errConflict { //nolint:errorlint // the very same
				t.Fatalf("%s: err = %#v, want a RetryError after %d tries", test.name, err, len(test.bounds)+1)
			}
			if !errors.Is(err, optimistic.ErrConflict) || !errors.Is(err, locks.ErrRetryable) {
				t.Errorf("%s: %v is not the last try's error", test.name, err)
			}
			if want := fmt.Sprintf("gave up after %d tries", len(at)); !strings.Contains(err.Error(), want) {
				t.Errorf("%s: err = %q, want %q in it", test.name, err, want)
			}
			for i, bound := range test.bounds {
				if pause := at[i+1].Sub(at[i]); pause <= 0 || pause > bound*time.Millisecond {
					t.Errorf("%s: pause %d was %v, want at most %v ms", test.name, i+1, pause, int64(bound))
				}
			}
		})
	}
}

// The pauses of two that conflicted together differ.
func TestRetryHasJitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lengths := map[time.Duration]bool{}
		for range 10 {
			began := time.Now()
			_ = optimistic.Retry(t.Context(), func(context.Context) error { return errConflict }, optimistic.WithTries(5))
			lengths[time.Since(began)] = true
		}
		if len(lengths) < 2 {
			t.Errorf("ten runs took the same time: %v", lengths)
		}
	})
}

func TestRetryReturnsOtherErrorsAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, want := range []error{errors.New("no such account"), optimistic.ErrNotFound, locks.ErrInvalid, context.Canceled} {
		tries := 0
		got := optimistic.Retry(t.Context(), func(context.Context) error { tries++; return want })
		if got != want || tries != 1 { //nolint:errorlint // the very same
			t.Errorf("Retry = %v after %d tries, want %v after 1", got, tries, want)
		}
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	t.Run("deadline in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := optimistic.Retry(ctx, func(context.Context) error { return errConflict }, optimistic.WithTries(1<<30))
			var gaveUp *optimistic.RetryError
			if !errors.As(err, &gaveUp) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, optimistic.ErrConflict) {
				t.Errorf("err = %v, want the deadline and the conflict", err)
			}
			if took := time.Since(began); took != time.Minute {
				t.Errorf("it took %v, want a minute", took)
			}
		})
	})
	t.Run("cancelled in a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			err := optimistic.Retry(ctx, func(context.Context) error { cancel(); return errConflict })
			var gaveUp *optimistic.RetryError
			if !errors.As(err, &gaveUp) || gaveUp.Tries != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, optimistic.ErrConflict) {
				t.Errorf("err = %v, want the cancellation and the conflict after one try", err)
			}
		})
	})
	t.Run("over before", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := optimistic.Retry(ctx, func(context.Context) error { t.Error("the function ran"); return nil })
		if !errors.Is(err, context.Canceled) || errors.Is(err, locks.ErrRetryable) {
			t.Errorf("err = %v, want the cancellation alone", err)
		}
	})
}

func TestRetryOptions(t *testing.T) {
	t.Parallel()
	for field, option := range map[string]optimistic.RetryOption{
		"tries":   optimistic.WithTries(0),
		"backoff": optimistic.WithBackoff(0, time.Second),
	} {
		err := optimistic.Retry(t.Context(), func(context.Context) error { t.Error("the function ran"); return nil }, option)
		isInvalid(t, field, err, field)
	}
	err := optimistic.Retry(t.Context(), func(context.Context) error { return nil }, optimistic.WithBackoff(2, 1))
	isInvalid(t, "backwards", err, "backoff")

	// The smallest bounds are bounds, too.
	err = optimistic.Retry(t.Context(), func(context.Context) error { return errConflict }, optimistic.WithBackoff(1, 1))
	if !errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("err = %v, want the conflict", err)
	}
}
