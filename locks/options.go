package locks

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of a [Locker].
const (
	// DefaultTTL is how long a lease lasts unless it is renewed.
	DefaultTTL = 30 * time.Second
	// DefaultReleaseLimit bounds a release with its retries.
	DefaultReleaseLimit = 5 * time.Second
	// DefaultCallLimit bounds every single call to the store.
	DefaultCallLimit = 5 * time.Second
	// DefaultMinBackoff and DefaultMaxBackoff bound the pause between two tries of a waiting acquire.
	DefaultMinBackoff = 50 * time.Millisecond
	DefaultMaxBackoff = time.Second
)

// Option configures a [Locker]. [New] returns the first bad one's error.
type Option interface{ applyLocker(*config) error }

// AcquireOption configures one acquire. A bad one is that acquire's error.
type AcquireOption interface{ applyAcquire(*acquisition) error }

// LeaseOption configures the leases of a whole [Locker], or those of one acquire.
type LeaseOption interface {
	Option
	AcquireOption
}

// config is what a locker was built with.
type config struct {
	lease        leaseConfig
	releaseLimit time.Duration
	callLimit    time.Duration
	minBackoff   time.Duration
	maxBackoff   time.Duration
	observers    []Observer
	logger       *slog.Logger // for what observers cannot be told; nil: nowhere
}

// leaseConfig is how a lease is kept.
type leaseConfig struct {
	ttl      time.Duration
	interval time.Duration // 0: ttl/3
	margin   time.Duration // 0: max(ttl/10, 50 ms)
	maxHold  time.Duration // 0: no limit
	manual   bool

	barge      bool
	maxWaiters int // 0: any number
}

// acquisition is one acquire in the making.
type acquisition struct {
	request Request
	lease   leaseConfig
	named   bool // the attempt is the caller's, whose retry must find what it was granted
}

type optionFunc func(*config) error

func (f optionFunc) applyLocker(c *config) error { return f(c) }

type acquireFunc func(*acquisition) error

func (f acquireFunc) applyAcquire(a *acquisition) error { return f(a) }

type leaseFunc func(*leaseConfig) error

func (f leaseFunc) applyLocker(c *config) error       { return f(&c.lease) }
func (f leaseFunc) applyAcquire(a *acquisition) error { return f(&a.lease) }

// WithTTL sets how long a lease lasts from its grant or renewal: from 100 ms to 24 h, 30 s by default. It is also how
// long a killed process keeps others out.
func WithTTL(ttl time.Duration) LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.ttl = ttl
		return ValidateTTL(ttl)
	})
}

// WithRenewalInterval sets the time from one renewal to the next: at most a third of the TTL, which is the default, so
// that a renewal that failed can be tried again while the lease lasts.
func WithRenewalInterval(interval time.Duration) LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.interval = interval
		return sane("renewal interval", interval)
	})
}

// WithMargin sets how long before the lease's end by time its context ends at the latest; max(TTL/10, 50 ms) by
// default. It covers clocks that run at different speeds and the time that work takes to stop. It must be shorter than
// what is left of the TTL after one renewal interval.
func WithMargin(margin time.Duration) LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.margin = margin
		return sane("margin", margin)
	})
}

// WithMaxHold ends the lease's context, with the cause [ErrMaxHold], and its renewal after so long; by default there
// is no limit. The resource is then free when the lease is released, or after the rest of its TTL.
func WithMaxHold(limit time.Duration) LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.maxHold = limit
		return sane("max hold", limit)
	})
}

// WithoutRenewal leaves the renewal to the caller ([Lease.Renew]): unless renewed, the lease's context ends at its
// local deadline.
func WithoutRenewal() LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.manual = true
		return nil
	})
}

// WithBarging takes a free resource also while others wait for it in its queue: more throughput, since whoever runs
// already need not hand over to one that must wake up first, and no order. An acquire with it that waits has a place in
// the queue all the same, and is woken in its turn. Fairness holds among those that do without it.
func WithBarging() LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.barge = true
		return nil
	})
}

// WithMaxWaiters lets an acquire wait only where fewer than so many wait for the resource already, in all processes; it is
// refused with [ErrQueueFull] otherwise. By default there is no limit. A store without a queue does not count.
func WithMaxWaiters(most int) LeaseOption {
	return leaseFunc(func(l *leaseConfig) error {
		l.maxWaiters = most
		if most < 1 {
			return &InvalidError{Field: "max waiters", Reason: fmt.Sprintf("must be at least 1, got %d", most)}
		}
		return nil
	})
}

// WithOwner names the owner of the lease, instead of a name that is random for each grant. A named owner does not
// exclude its own other acquires, in this process or in another: each takes the lease over from the one before.
func WithOwner(owner string) AcquireOption {
	return acquireFunc(func(a *acquisition) error {
		a.request.Owner = owner
		return ValidateOwner(owner)
	})
}

// WithMetadata keeps one JSON object of at most 4 KiB with the lease, for people who look at it.
func WithMetadata(metadata json.RawMessage) AcquireOption {
	return acquireFunc(func(a *acquisition) error {
		a.request.Metadata = metadata
		return ValidateMetadata(metadata)
	})
}

// WithAttempt gives the acquire its identity, instead of a random one: a later acquire of the same owner with the same
// attempt finds the same grant. It makes sense together with [WithOwner]. When an acquire with a named attempt fails
// without an answer, nothing is freed in the background: what it may have been granted waits for the retry, until its
// TTL ends.
func WithAttempt(attempt string) AcquireOption {
	return acquireFunc(func(a *acquisition) error {
		a.request.Attempt = attempt
		return validateName("attempt", attempt, MaxAttemptBytes)
	})
}

// WithReleaseLimit bounds a release with its retries, that of a [LeaseSet] as a whole, 5 s by default. Then the row is left
// to its TTL.
func WithReleaseLimit(limit time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.releaseLimit = limit
		return sane("release limit", limit)
	})
}

// WithCallLimit bounds every single call to the store, 5 s by default, whatever context the caller gives and also with
// a driver that ignores contexts. A renewal is bounded by its interval as well.
func WithCallLimit(limit time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.callLimit = limit
		return sane("call limit", limit)
	})
}

// WithBackoff bounds the pause between two tries of a waiting acquire, 50 ms and 1 s by default: the pause is random
// between 0 and a bound that doubles from least to most.
func WithBackoff(least, most time.Duration) Option {
	return optionFunc(func(c *config) error {
		c.minBackoff, c.maxBackoff = least, most
		if most < least {
			return &InvalidError{Field: "backoff", Reason: fmt.Sprintf("must not be longer at least (%v) than at most (%v)", least, most)}
		}
		return errors.Join(sane("backoff", least), sane("backoff", most))
	})
}

// WithObserver tells the observer of everything that happens to the locker's leases. Several observers are told in
// their order.
func WithObserver(observer Observer) Option {
	return optionFunc(func(c *config) error {
		if f, ok := observer.(ObserverFunc); observer == nil || ok && f == nil {
			return &InvalidError{Field: "observer", Reason: "must not be nil"}
		}
		c.observers = append(c.observers, observer)
		return nil
	})
}

// WithLogger logs what happens to the locker's leases, as [LogObserver] does.
func WithLogger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) error {
		if logger == nil {
			return &InvalidError{Field: "logger", Reason: "must not be nil"}
		}
		c.logger = logger
		c.observers = append(c.observers, LogObserver(logger))
		return nil
	})
}

// sane refuses durations that are a slip of a unit: shorter than a millisecond, or longer than any lease.
func sane(field string, d time.Duration) error {
	if d < time.Millisecond || d > MaxTTL {
		return &InvalidError{Field: field, Reason: fmt.Sprintf("must be from %v to %v, got %v", time.Millisecond, MaxTTL, d)}
	}
	return nil
}

// settle puts in the defaults that follow from the TTL and checks how the parts fit.
func (l *leaseConfig) settle() error {
	if l.interval == 0 {
		l.interval = l.ttl / 3
	}
	if l.interval > l.ttl/3 {
		return &InvalidError{Field: "renewal interval", Reason: fmt.Sprintf("must be at most a third of the TTL (%v), got %v", l.ttl, l.interval)}
	}
	if l.margin == 0 {
		l.margin = max(l.ttl/10, 50*time.Millisecond)
	}
	if l.margin >= l.ttl-l.interval {
		return &InvalidError{Field: "margin", Reason: fmt.Sprintf("must be shorter than the TTL (%v) less the renewal interval (%v), got %v", l.ttl, l.interval, l.margin)}
	}
	return nil
}
