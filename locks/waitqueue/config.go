package waitqueue

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Defaults of a [Config].
const (
	// DefaultTTL is how long a ticket lasts unless it is kept: for so long a process that was killed delays those behind
	// it. It is kept each third of that.
	DefaultTTL = 15 * time.Second
	// DefaultMinPoll and DefaultMaxPoll bound the pause between two looks while nothing is heard.
	DefaultMinPoll = 50 * time.Millisecond
	DefaultMaxPoll = time.Second
	// DefaultCallLimit bounds every call to the backend.
	DefaultCallLimit = 5 * time.Second
)

// Config configures a [Front]. Backend is required, the rest has defaults.
type Config struct {
	Backend Backend
	// TTL is how long a ticket lasts unless it is kept. Default: 15 s.
	TTL time.Duration
	// MinPoll and MaxPoll bound the pause between two looks while nothing is heard. Default: 50 ms and 1 s.
	MinPoll, MaxPoll time.Duration
	// CallLimit bounds every call to the backend. Default: 5 s.
	CallLimit time.Duration
	// Waker hears turns; the backend must be an [Announcer] then. Default: the front polls.
	Waker locks.Waker
	// Logger is told when the waker hears nothing, and when it does again. Default: nothing is logged.
	Logger *slog.Logger
}

// complete puts in the defaults and looks at the rest.
func (c *Config) complete() error {
	if c.Backend == nil {
		return &locks.InvalidError{Field: "Backend", Reason: "is required"}
	}
	if _, ok := c.Backend.(Announcer); c.Waker != nil && !ok {
		return &locks.InvalidError{Field: "Waker", Reason: "needs a backend that can announce"}
	}
	for _, d := range []struct {
		name      string
		value     *time.Duration
		otherwise time.Duration
	}{
		{"TTL", &c.TTL, DefaultTTL},
		{"MinPoll", &c.MinPoll, DefaultMinPoll},
		{"MaxPoll", &c.MaxPoll, max(DefaultMaxPoll, c.MinPoll)},
		{"CallLimit", &c.CallLimit, DefaultCallLimit},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
		if *d.value < time.Millisecond {
			return &locks.InvalidError{Field: d.name, Reason: fmt.Sprintf("must be at least 1ms, got %v", *d.value)}
		}
	}
	if c.MaxPoll < c.MinPoll {
		return &locks.InvalidError{Field: "MaxPoll", Reason: fmt.Sprintf("must be at least MinPoll (%v), got %v", c.MinPoll, c.MaxPoll)}
	}
	if c.TTL > locks.MaxTTL {
		return &locks.InvalidError{Field: "TTL", Reason: fmt.Sprintf("must be at most %v, got %v", locks.MaxTTL, c.TTL)}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
