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

// serverError is a driver's error with its SQLSTATE.
type serverError string

func (e serverError) Error() string    { return "server: " + string(e) }
func (e serverError) SQLState() string { return string(e) }

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
			case 4: // from a statement of one's own, or the commit
				return fmt.Errorf("commit: %w", serverError("40001"))
			}
			return nil
		})
		if err != nil || tries != 5 {
			t.Errorf("Retry = %v after %d tries, want nil after 5", err, tries)
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

// A driver's own error is what the package calls it when the tries are used up.
func TestRetryGivesUpOnADriversError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlock := serverError("40P01")
		err := optimistic.Retry(t.Context(), func(context.Context) error { return deadlock }, optimistic.WithTries(2))
		var gaveUp *optimistic.RetryError
		if !errors.As(err, &gaveUp) || gaveUp.Tries != 2 || !errors.Is(err, locks.ErrSerialization) || !errors.Is(err, deadlock) {
			t.Errorf("err = %v, want a RetryError after 2 tries with ErrSerialization and the driver's", err)
		}
	})
}

// The file of another connection that writes is busy: the error is the driver's own.
func TestRetryOfABusyFile(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	writer, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	execSQL(t, writer, "BEGIN IMMEDIATE")
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	execSQL(t, other, "PRAGMA busy_timeout = 0")
	tries := 0
	err = optimistic.Retry(t.Context(), func(ctx context.Context) error {
		if tries++; tries == 2 {
			execSQL(t, writer, "ROLLBACK")
		}
		_, err := other.ExecContext(ctx, "INSERT INTO accounts (id) VALUES (7)")
		return err
	})
	if err != nil || tries != 2 {
		t.Errorf("Retry = %v after %d tries, want nil after 2", err, tries)
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
	for _, want := range []error{errors.New("no such account"), optimistic.ErrNotFound, locks.ErrInvalid, context.Canceled, serverError("23505")} {
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
	isInvalid(t, "nil option", optimistic.Retry(t.Context(), func(context.Context) error { return nil }, nil), "option")
	isInvalid(t, "nil function", optimistic.Retry(t.Context(), nil), "function")

	// The smallest bounds are bounds, too.
	err = optimistic.Retry(t.Context(), func(context.Context) error { return errConflict }, optimistic.WithBackoff(1, 1))
	if !errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("err = %v, want the conflict", err)
	}
}
