package election_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A config that does not fit is refused by New, with the name of the field.
func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	locker, err := locks.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what     string
		field    string // "" where it is good
		resource string
		change   func(*election.Config)
	}{
		{"the least there is", "", "r", func(*election.Config) {}},
		{"no work", "lead", "r", func(c *election.Config) { c.Lead = nil }},
		{"no resource", "resource", "", func(*election.Config) {}},
		{"a short TTL", "ttl", "r", func(c *election.Config) { c.TTL = election.MinTTL - 1 }},
		{"a negative TTL", "ttl", "r", func(c *election.Config) { c.TTL = -1 }},
		{"a long TTL", "ttl", "r", func(c *election.Config) { c.TTL = locks.MaxTTL + 1 }},
		{"the shortest TTL", "", "r", func(c *election.Config) { c.TTL = election.MinTTL }},
		{"the longest TTL", "", "r", func(c *election.Config) { c.TTL = locks.MaxTTL }},
		{"the longest stop limit", "", "r", func(c *election.Config) { c.StopLimit = 15 * time.Second }},
		{"a stop limit that the TTL does not cover", "stop limit", "r", func(c *election.Config) { c.StopLimit = 15*time.Second + 1 }},
		{"a stop limit in the wrong unit", "stop limit", "r", func(c *election.Config) { c.StopLimit = 5 }},
		{"a negative stop limit", "stop limit", "r", func(c *election.Config) { c.StopLimit = -time.Second }},
		{"the longest name", "", "r", func(c *election.Config) { c.Name = strings.Repeat("n", 228) }},
		{"a long name", "name", "r", func(c *election.Config) { c.Name = strings.Repeat("n", 229) }},
		{"a name with a line break", "name", "r", func(c *election.Config) { c.Name = "a\nb" }},
		{"metadata that is no object", "metadata", "r", func(c *election.Config) { c.Metadata = json.RawMessage(`[]`) }},
	} {
		config := election.Config{Lead: func(context.Context, *locks.Lease) error { return nil }}
		test.change(&config)
		candidate, err := election.New(locker, test.resource, config)
		var invalid *locks.InvalidError
		switch {
		case test.field == "" && err == nil:
			if err := candidate.Campaign(t.Context()); err != nil {
				t.Errorf("%s: Campaign: %v", test.what, err)
			}
		case test.field == "" || !errors.As(err, &invalid) || invalid.Field != test.field:
			t.Errorf("%s: New: %v", test.what, err)
		}
	}
	if _, err := election.New(nil, "r", election.Config{}); !errors.Is(err, locks.ErrInvalid) {
		t.Errorf("New without a locker: %v", err)
	}
}

// Each kind of event has a name.
func TestEventKindsHaveNames(t *testing.T) {
	t.Parallel()
	for kind, want := range map[election.EventKind]string{
		0: "EventKind(0)", election.EventElected: "elected", election.EventEnded: "ended", election.EventOverstayed: "overstayed",
		election.EventFailed: "failed", election.EventFailed + 1: "EventKind(5)",
	} {
		if got := kind.String(); got != want {
			t.Errorf("EventKind %d is %q, want %q", int(kind), got, want)
		}
	}
}
