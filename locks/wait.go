package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxFaultTime is how long a waiting acquire outlives faults in a row: long enough for connections that were cut and a
// server that restarts, too short to hide a missing table.
const maxFaultTime = 10 * time.Second

// Wait acquires what request asks for and waits while it is held, in the resource's queue where the store is a [Queuer],
// until ctx ends, as [Locker.Acquire] does. It keeps no lease: it is for those who acquire in the name of somebody else,
// as package lockhttp does. Try is one acquire of that request; what it was granted when it returned an error is the
// caller's to free.
//
// Errors: try's, unless it is [ErrHeld], [ErrRetryable] or a fault that has lasted for less than 10 s; ctx's end, joined with
// what the last try before it met; [ErrQueueFull]; [ErrClosed] when options.Closing is closed.
func Wait(ctx context.Context, store Store, request Request, options WaitOptions, try func(context.Context) (Lock, error)) (Lock, error) {
	options.complete()
	return waitFor(ctx, &waiting{WaitOptions: options, store: store, request: &request}, func() (Lock, error) { return try(ctx) })
}

// WaitOptions configures [Wait]. The zero value has the defaults.
type WaitOptions struct {
	// MaxWaiters is how many may wait for the resource, 0 or less for any number.
	MaxWaiters int
	// MinBackoff and MaxBackoff bound the pause between two tries without a queue, and after faults. Default: 50 ms and 1 s.
	MinBackoff, MaxBackoff time.Duration
	// CallLimit bounds every call to the queue. Default: 5 s.
	CallLimit time.Duration
	// Closing ends the wait with [ErrClosed] when it is closed. Default: never.
	Closing <-chan struct{}
	// Background runs what is left to do when Wait has returned, giving the place up. Default: on a goroutine of its own.
	Background func(func())
}

func (o *WaitOptions) complete() {
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{
		{&o.MinBackoff, DefaultMinBackoff},
		{&o.MaxBackoff, max(DefaultMaxBackoff, o.MinBackoff)},
		{&o.CallLimit, DefaultCallLimit},
	} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	o.MaxWaiters = max(0, o.MaxWaiters)
	if o.Background == nil {
		o.Background = func(fn func()) { go fn() }
	}
}

// waiting is one who waits.
type waiting struct {
	WaitOptions
	store   Store
	request *Request // what each try asks for: a try may change its attempt
	queued  func(Waiter)
	place   Place // nil without one
	fresh   bool  // nothing was tried since it was drawn
}

// waitFor tries until there is what was asked for, the context ends, or there is no hope.
func waitFor[T any](ctx context.Context, w *waiting, try func() (T, error)) (T, error) {
	var (
		none    T
		last    error     // what the store said, or how it failed, before the context ended
		failing time.Time // since when it fails, zero while it does not
		pauses  = backoff{w.MinBackoff, w.MaxBackoff}
	)
	served := false
	defer func() { w.part(ctx, served) }()
	giveUp := func(err error) (T, error) {
		if last != nil && ctx.Err() != nil && !errors.Is(err, last) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		return none, err
	}
	for {
		value, err := try()
		var held *HeldError
		isHeld := errors.As(err, &held)
		if isHeld {
			last = err
			if err = w.enqueue(ctx); err == nil { // else it fails on, though the store answers: the queue's table may be missing
				failing = time.Time{}
			}
		}
		var waited error
		switch sleep := pauses.next(); {
		case isHeld && err == nil && w.fresh: // it may have become free before the ticket was seen
			w.fresh = false
			waited = w.over(ctx)
		case isHeld && err == nil && w.place != nil:
			pauses = backoff{w.MinBackoff, w.MaxBackoff}
			waited = w.turn(ctx)
		case isHeld && err == nil: // without a queue
			if held.Holder != nil && held.Remaining < sleep {
				// The holder may be dead: be there when its lease ends, though not all waiters in the same instant.
				sleep = held.Remaining + jitter(w.MinBackoff)
			}
			waited = pause(ctx, w.Closing, sleep)
		case err == nil:
			served = true
			return value, nil
		case errors.Is(err, ErrRetryable):
			last, failing = err, time.Time{}
			waited = pause(ctx, w.Closing, sleep)
		case unanswered(err):
			if ctx.Err() != nil {
				return giveUp(err)
			}
			last = err
			if failing.IsZero() {
				failing = time.Now()
			}
			if time.Since(failing) >= maxFaultTime {
				return giveUp(err)
			}
			waited = pause(ctx, w.Closing, sleep)
		default:
			return giveUp(err)
		}
		if waited != nil {
			return giveUp(waited)
		}
	}
}

// enqueue sees to it that there is a place in the queue, where the store has one, and says by fresh that it is new.
func (w *waiting) enqueue(ctx context.Context) error {
	queuer, ok := w.store.(Queuer)
	if !ok || w.place != nil && !w.place.Lapsed() {
		return nil
	}
	w.part(ctx, false)
	asked, returned := *w.request, make(chan struct{})
	place, err := call.Tracked(ctx, w.CallLimit, func(ctx context.Context) (Place, error) {
		return queuer.Enqueue(ctx, asked, w.MaxWaiters)
	}, func(place Place, err error) {
		if err == nil {
			w.leave(ctx, place) // for nobody
		}
	}, func() { close(returned) })
	if err != nil {
		select {
		case <-returned:
		default: // it has yet to come back, and to take back what it draws
			w.Background(func() { <-returned })
		}
		return faultOf(ctx, err)
	}
	w.place, w.fresh = place, true
	if w.queued != nil {
		w.queued(place.Waiter())
	}
	return nil
}

// turn waits until it may be our turn.
func (w *waiting) turn(ctx context.Context) error {
	select {
	case <-w.place.Turn():
	case <-ctx.Done():
	case <-w.Closing:
	}
	return w.over(ctx)
}

// over returns why the wait is over, if it is: also where the turn comes in the same instant, which then is the next one's.
func (w *waiting) over(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	default:
	}
	select {
	case <-w.Closing:
		return ErrClosed
	default:
		return nil
	}
}

// part gives the place back, if there is one.
func (w *waiting) part(ctx context.Context, served bool) {
	place := w.place
	w.place = nil
	switch {
	case place == nil:
	case served:
		place.Served()
	default:
		w.Background(func() { w.leave(ctx, place) })
	}
}

func (w *waiting) leave(ctx context.Context, place Place) {
	_, _ = call.Do(context.WithoutCancel(ctx), w.CallLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, place.Leave(ctx)
	}, nil)
}

// pause waits for d, unless the context ends or closing is closed.
func pause(ctx context.Context, closing <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-closing:
		return ErrClosed
	}
}
