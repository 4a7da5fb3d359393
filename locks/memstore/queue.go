package memstore

import (
	"context"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

var (
	_ locks.Queuer      = (*Store)(nil)
	_ waitqueue.Backend = backend{}
)

// Enqueue implements [locks.Queuer]. A place lasts for 15 s unless it is kept, which this process does as long as it runs.
// Whoever frees the resource wakes the first one directly; a lease that ends by time is noticed within a millisecond.
func (s *Store) Enqueue(ctx context.Context, request locks.Request, most int) (locks.Place, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := request.Validate(); err != nil {
		return nil, err
	}
	return s.front().Enqueue(ctx, request, most)
}

// Waiters implements [locks.Queuer].
func (s *Store) Waiters(ctx context.Context, resource string, limit int) (locks.Queue, error) {
	if err := ctx.Err(); err != nil {
		return locks.Queue{}, err
	}
	if err := locks.ValidateWaiters(resource, limit); err != nil {
		return locks.Queue{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live := s.waiting.live(resource, time.Now())
	queue := locks.Queue{Waiting: len(live)}
	for _, t := range live[:min(limit, len(live))] {
		queue.Waiters = append(queue.Waiters, t.waiter())
	}
	return queue, nil
}

// front is made when somebody waits, so that the zero value of a store is one.
func (s *Store) front() *waitqueue.Front {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil {
		s.queue, _ = waitqueue.NewFront(waitqueue.Config{Backend: backend{s}}) // what is given here breaks no rule
	}
	return s.queue
}

// isOthersTurn reports whether the request, for a resource that is free, must leave it to somebody who waits. This and the
// next two run under the store's mutex.
func (s *Store) isOthersTurn(request locks.Request, now time.Time) bool {
	first := s.waiting.first(request.Resource, now)
	return first != nil && !request.Barge && first.waits != waitsFor(request)
}

// wakeFirst tells the first one in the line for a resource that it may be its turn.
func (s *Store) wakeFirst(resource string) {
	if first := s.waiting.first(resource, time.Now()); first != nil {
		s.queue.Wake(first.number)
	}
}

// wakeAfter tells the first ones in the lines for what an ended transaction or savepoint had: they were refused meanwhile.
func (s *Store) wakeAfter(ended []*level) {
	for _, l := range ended {
		for resource := range l.changes {
			s.wakeFirst(resource)
		}
		for resource := range l.guards {
			s.wakeFirst(resource)
		}
		for resource := range l.claims {
			s.wakeFirst(resource)
		}
	}
}

// backend is the store's tickets as its front uses them.
type backend struct{ store *Store }

func (b backend) Enqueue(ctx context.Context, request locks.Request, ttl time.Duration, _ string, most int) (locks.Waiter, error) {
	if err := ctx.Err(); err != nil {
		return locks.Waiter{}, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now, w := time.Now(), waitsFor(request)
	if t := s.waiting.of[w]; t != nil && t.live(now) {
		return t.waiter(), nil
	}
	s.waiting.remove(w)
	if most > 0 && len(s.waiting.live(request.Resource, now)) >= most {
		return locks.Waiter{}, locks.ErrQueueFull
	}
	return s.waiting.draw(w, now, ttl).waiter(), nil
}

func (b backend) Dequeue(ctx context.Context, resource, owner, attempt string) (next int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.waiting.remove(waits{resource, owner, attempt})
	if first, r := s.waiting.first(resource, now), s.rows[resource]; first != nil && (!r.live(now) || r.isGroup()) {
		next = first.number // a group may have room for it
	}
	return next, nil
}

// Keep also forgets the tickets that nobody keeps.
func (b backend) Keep(ctx context.Context, tickets []int64, ttl time.Duration, _ string) (kept []int64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wanted := make(map[int64]struct{}, len(tickets))
	for _, number := range tickets {
		wanted[number] = struct{}{}
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.waiting.sweep(now)
	for _, t := range s.waiting.of {
		if _, ok := wanted[t.number]; ok {
			t.expireAt = now.Add(ttl)
			kept = append(kept, t.number)
		}
	}
	return kept, nil
}

func (b backend) Look(ctx context.Context, tickets []waitqueue.Ticket) (sights []waitqueue.Sight, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, asked := range tickets {
		if s.waiting.find(asked.Resource, asked.Number, now) == nil {
			continue
		}
		sight := waitqueue.Sight{Number: asked.Number}
		switch first, r := s.waiting.first(asked.Resource, now), s.rows[asked.Resource]; {
		case first.number != asked.Number:
			sight.After = first.expireAt.Sub(now)
		case asked.Slots != 0:
			sight.Turn, sight.After = s.lookAtShare(asked.Resource, asked.Slots, now)
		case r.live(now):
			sight.After = r.expiresAt.Sub(now)
		default:
			sight.Turn = true
		}
		sights = append(sights, sight)
	}
	return sights, nil
}
