package bunstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

var (
	_ locks.Queuer        = (*Store)(nil)
	_ waitqueue.Backend   = backend{}
	_ waitqueue.Announcer = backend{}
)

// queueEngine is the part of an engine that keeps the queue, see [waitqueue.Backend]. What it is given is valid, its
// context has a deadline.
type queueEngine interface {
	enqueue(ctx context.Context, request locks.Request, ttl time.Duration, channel string, most int) (locks.Waiter, error)
	dequeue(ctx context.Context, resource, owner, attempt string) (next int64, err error)
	keep(ctx context.Context, tickets []int64, ttl time.Duration, channel string) (kept []int64, err error)
	look(ctx context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error)
	waiters(ctx context.Context, resource string, limit int) (locks.Queue, error)
	announce(ctx context.Context, channel, payload string) error
}

// Enqueue implements [locks.Queuer]. The waiters of a store share what keeps their places and tells them of their turn:
// make one store for a process.
func (s *Store) Enqueue(ctx context.Context, request locks.Request, most int) (locks.Place, error) {
	if err := request.Validate(); err != nil {
		return nil, err
	}
	place, err := s.front.Enqueue(ctx, request, most)
	if p, ok := s.engine.(postgres); ok && err == nil {
		return p.waiting.add(request, place), nil
	}
	return place, err
}

// Waiters implements [locks.Queuer].
func (s *Store) Waiters(ctx context.Context, resource string, limit int) (locks.Queue, error) {
	if err := locks.ValidateWaiters(resource, limit); err != nil {
		return locks.Queue{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	queue, err := s.engine.waiters(ctx, resource, limit)
	return queue, s.fault(ctx, "list waiters", err)
}

// backend is the store as its front uses it.
type backend struct{ store *Store }

func (b backend) Enqueue(ctx context.Context, request locks.Request, ttl time.Duration, channel string, most int) (locks.Waiter, error) {
	ctx, cancel := b.store.bound(ctx)
	defer cancel()
	waiter, err := b.store.engine.enqueue(ctx, request, ttl, channel, most)
	return waiter, b.store.fault(ctx, "enqueue", err)
}

func (b backend) Dequeue(ctx context.Context, resource, owner, attempt string) (int64, error) {
	ctx, cancel := b.store.bound(ctx)
	defer cancel()
	next, err := b.store.engine.dequeue(ctx, resource, owner, attempt)
	return next, b.store.fault(ctx, "dequeue", err)
}

func (b backend) Keep(ctx context.Context, tickets []int64, ttl time.Duration, channel string) ([]int64, error) {
	ctx, cancel := b.store.bound(ctx)
	defer cancel()
	kept, err := b.store.engine.keep(ctx, tickets, ttl, channel)
	return kept, b.store.fault(ctx, "keep tickets", err)
}

func (b backend) Look(ctx context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	ctx, cancel := b.store.bound(ctx)
	defer cancel()
	sights, err := b.store.engine.look(ctx, tickets)
	return sights, b.store.fault(ctx, "look at tickets", err)
}

func (b backend) Announce(ctx context.Context, channel, payload string) error {
	ctx, cancel := b.store.bound(ctx)
	defer cancel()
	return b.store.fault(ctx, "announce", b.store.engine.announce(ctx, channel, payload))
}

// scanSight reads a row that tells how a ticket stands: its number, whether it is its turn, and the time in µs.
func scanSight(rows *sql.Rows) (sight waitqueue.Sight, err error) {
	var after int64
	err = rows.Scan(&sight.Number, &sight.Turn, &after)
	sight.After = time.Duration(after) * time.Microsecond
	return sight, err
}
