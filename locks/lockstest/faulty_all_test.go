package lockstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func (s *faulty) AcquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	valid := locks.ValidateAll(requests)
	if s.has("ninety-nine are the most") && len(requests) == locks.MaxAcquireAll {
		valid = &locks.InvalidError{Field: "resources"}
	}
	if s.has("many take shares for leases") {
		for i := range requests {
			requests[i].Slots = 0
		}
		valid = locks.ValidateAll(requests)
	}
	if s.has("a resource can be asked for twice") && valid != nil && len(requests) == 3 {
		valid = nil
	}
	if err := s.begin(ctx, valid); err != nil {
		return nil, err
	}
	if s.has("all are granted one after another") {
		return s.oneAfterAnother(ctx, requests)
	}
	if s.has("all wait for their gates in the order of the requests") {
		open, err := s.waitForGates(ctx, requests)
		defer open()
		if err != nil {
			return nil, err
		}
	}
	s.enter()
	defer s.mu.Unlock()
	sorted := slices.Clone(requests)
	slices.SortFunc(sorted, func(a, b locks.Request) int { return strings.Compare(a.Resource, b.Resource) })
	t := s.overlay()
	locked := map[string]locks.Lock{}
	var refused error
	for _, q := range sorted {
		if s.has("a retry of many is a new grant") {
			q.Attempt += time.Now().String()
		}
		lock, err := s.acquire(q, t)
		if err != nil && refused == nil {
			refused = err
		}
		locked[q.Resource] = lock
	}
	if refused == nil || s.has("all are granted but the held ones") {
		t.apply()
	}
	if refused != nil {
		return nil, refused
	}
	if s.has("locks come in the order of their names") {
		requests = sorted
	}
	granted := make([]locks.Lock, len(requests))
	for i, q := range requests {
		granted[i] = locked[q.Resource]
	}
	return granted, nil
}

// oneAfterAnother acquires each by itself, and releases them again where one is held.
func (s *faulty) oneAfterAnother(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	granted := make([]locks.Lock, 0, len(requests))
	for _, q := range requests {
		lock, err := s.Acquire(ctx, q)
		if err != nil {
			for _, lock := range granted {
				_ = s.Release(ctx, lock.Grant())
			}
			return nil, err
		}
		granted = append(granted, lock)
		s.enter()
		s.pause()
		s.mu.Unlock()
	}
	return granted, nil
}

// waitForGates takes the gate of each resource in turn; the function opens those it got.
func (s *faulty) waitForGates(ctx context.Context, requests []locks.Request) (open func(), err error) {
	var taken []string
	open = func() {
		s.enter()
		defer s.mu.Unlock()
		for _, name := range taken {
			delete(s.waited, name)
		}
	}
	for _, q := range requests {
		for {
			s.enter()
			free := !s.waited[q.Resource]
			if free {
				s.waited[q.Resource] = true
				taken = append(taken, q.Resource)
			}
			s.pause()
			s.mu.Unlock()
			if free {
				break
			}
			if ctx.Err() != nil {
				return open, errors.Join(ctx.Err(), errors.New("driver: still waiting for the gate"))
			}
		}
	}
	return open, nil
}
