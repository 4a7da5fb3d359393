package optimistic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/backoff"
	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/locks"
)

// Defaults of [Retry].
const (
	// DefaultTries is how often the function runs at most.
	DefaultTries = 10
	// DefaultMinBackoff and DefaultMaxBackoff bound the pause between two tries.
	DefaultMinBackoff = 5 * time.Millisecond
	DefaultMaxBackoff = 500 * time.Millisecond
)

// RetryOption configures one [Retry]. The first bad one is its error.
type RetryOption func(*retry) error

type retry struct {
	tries    int
	min, max time.Duration
}

// WithTries is how often the function runs at most, 10 by default. 1 is no retry.
func WithTries(n int) RetryOption {
	return func(r *retry) error {
		if n < 1 {
			return &locks.InvalidError{Field: "tries", Reason: fmt.Sprintf("must be at least 1, got %d", n)}
		}
		r.tries = n
		return nil
	}
}

// WithBackoff bounds the pauses: each is random between 0 and a bound that doubles from least to most, by default from 5
// ms to 500 ms.
func WithBackoff(least, most time.Duration) RetryOption {
	return func(r *retry) error {
		if least <= 0 || most < least {
			return &locks.InvalidError{Field: "backoff", Reason: fmt.Sprintf("must be positive and in order, got %v and %v", least, most)}
		}
		r.min, r.max = least, most
		return nil
	}
}

// Retry runs fn, and again after a pause as long as its error is [locks.ErrRetryable] (a version conflict, a busy
// database, a transaction that could not be serialised) or a driver's own of that kind, from a statement of fn's or its
// commit: a serialization failure, a deadlock, a lock timeout; a busy file. fn reads anew each time; a transaction it
// needs it also begins and commits itself, since one that has failed, or that has a snapshot, cannot get further. What it
// does outside the database happens once per try.
//
// Errors: any other of fn's as it is; a [*RetryError] with the last one when the tries are used up or ctx has ended;
// [*locks.InvalidError] for a bad option, or without fn. Safe for concurrent use.
func Retry(ctx context.Context, fn func(ctx context.Context) error, options ...RetryOption) error {
	r := retry{tries: DefaultTries, min: DefaultMinBackoff, max: DefaultMaxBackoff}
	for _, option := range options {
		if option == nil {
			return &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(&r); err != nil {
			return err
		}
	}
	if fn == nil {
		return &locks.InvalidError{Field: "function", Reason: "must not be nil"}
	}
	if ended := dberror.ContextEnd(ctx); ended != nil {
		return &RetryError{Cause: ended}
	}
	pauses := backoff.New(r.min, r.max)
	for try := 1; ; try++ {
		err := fn(ctx)
		if !errors.Is(err, locks.ErrRetryable) && !dberror.IsRetryable(err) {
			return err
		}
		var ended error
		if try < r.tries {
			if ended = backoff.Wait(ctx, pauses.Next()); ended == nil {
				continue
			}
		}
		// The driver's own gets its kind; without ctx, whose end is told apart.
		last := dberror.Wrap(context.WithoutCancel(ctx), "optimistic: the last try", err)
		return &RetryError{Tries: try, Last: last, Cause: ended}
	}
}
