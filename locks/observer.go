package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// EventKind is what an [Event] tells of.
type EventKind int

// The kinds of events.
const (
	// EventAcquired: a lease was granted. Elapsed is the time from the start of the acquire.
	EventAcquired EventKind = iota + 1
	// EventRefused: an acquire ended because the resource was held. Err is the [*HeldError]. (A [*SlotsError] is a failure:
	// two callers do not agree on what the resource is.)
	EventRefused
	// EventAcquireFailed: an acquire ended by a fault or by its context. Err is what it returned.
	EventAcquireFailed
	// EventRenewed: a lease was renewed.
	EventRenewed
	// EventRenewFailed: a renewal failed and will be tried again while the lease lasts. Err is the fault.
	EventRenewFailed
	// EventLost: a lease ended before it was released. Err is the [*LostError].
	EventLost
	// EventRolledBack: a lease ended because the transaction that acquired it was rolled back. Err is the [*LostError].
	EventRolledBack
	// EventReleased: a lease was released.
	EventReleased
	// EventReleaseFailed: a release was refused, or given up; in the second case the row stays until its TTL. Err tells.
	EventReleaseFailed
	// EventQueued: an acquire that waits was given a place in the resource's queue, or a new one in the place of one that
	// has lapsed. Elapsed is the time from the start of the acquire.
	EventQueued
)

var eventNames = [...]string{
	EventAcquired: "acquired", EventRefused: "refused", EventAcquireFailed: "acquire failed", EventRenewed: "renewed",
	EventRenewFailed: "renew failed", EventLost: "lost", EventRolledBack: "rolled back", EventReleased: "released", EventReleaseFailed: "release failed",
	EventQueued: "queued",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if k < EventAcquired || int(k) >= len(eventNames) {
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
	return eventNames[k]
}

// Event is something that happened to a lease or to an acquire.
type Event struct {
	Kind EventKind
	// Grant is the lease's; for an acquire that failed its Token is 0.
	Grant Grant
	// Elapsed is how long the acquire, renewal or release took, on the application's monotonic clock, waits included; for
	// a lost lease, how long it had been held.
	Elapsed time.Duration
	// Tries is how many tries the acquire or release took.
	Tries int
	// Err is nil where all went well.
	Err error
}

// Observer is told of events as they happen, in the goroutine they happen in: it must be safe for concurrent use and
// must not block, and must not call back into the lease. The context carries the acquire's values; for events after a
// lease's end it has ended. A panic of an observer cannot stop the renewals: it is
// logged where [WithLogger] gave a logger, and swallowed otherwise.
type Observer interface {
	Observe(ctx context.Context, event Event)
}

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(ctx context.Context, event Event)

// Observe calls the function.
func (f ObserverFunc) Observe(ctx context.Context, event Event) { f(ctx, event) }

// LogObserver logs events: a lost lease and a failed release as a warning, a failed renewal or acquire as one too,
// what goes well and what is merely held at debug level.
func LogObserver(logger *slog.Logger) Observer {
	return ObserverFunc(func(ctx context.Context, event Event) {
		level := slog.LevelDebug
		switch event.Kind {
		case EventLost, EventReleaseFailed, EventRenewFailed:
			level = slog.LevelWarn
		case EventAcquireFailed:
			if !errors.Is(event.Err, context.Canceled) && !errors.Is(event.Err, ErrHeld) {
				level = slog.LevelWarn
			}
		}
		if !logger.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("resource", event.Grant.Resource),
			slog.String("owner", event.Grant.Owner),
			slog.Int64("token", event.Grant.Token),
			slog.Duration("elapsed", event.Elapsed),
		}
		if event.Err != nil {
			attrs = append(attrs, slog.Any("error", event.Err))
		}
		logger.LogAttrs(ctx, level, "lease "+event.Kind.String(), attrs...)
	})
}

// observe tells the observers, and outlives each one's panic: a renewal must not die of a broken log handler.
func (c *config) observe(ctx context.Context, event Event) {
	for _, observer := range c.observers {
		protect(func() { observer.Observe(ctx, event) }, func(panicked any) {
			if c.logger != nil {
				c.logger.ErrorContext(ctx, "lease observer panicked", "panic", panicked, "stack", string(debug.Stack()))
			}
		})
	}
}

// protect runs do and tells report of its panic; a panic of report is swallowed, it may be the same broken logger.
func protect(do func(), report func(panicked any)) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }()
			report(p)
		}
	}()
	do()
}
