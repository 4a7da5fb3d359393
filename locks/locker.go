package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// Locker acquires leases in a store and keeps them. It is safe for concurrent use. A process needs one per store;
// [Locker.Close] ends it.
type Locker struct {
	store  Store
	config config
	// freeing bounds how many calls at once free attempts that nobody waits for any more, so that a database in
	// trouble is not asked by all of them together.
	freeing chan struct{}
	closing chan struct{} // closed when Close begins
	left    func()        // leave, as a value that is made once

	mu     sync.Mutex
	closed bool
	leases map[*Lease]struct{} // neither released nor lost
	busy   int                 // running acquires, works, leases and goroutines
	idle   chan struct{}       // closed when the locker is closed and nothing is busy
}

// New returns a locker on the store. Errors: [ErrInvalid], for the first bad option.
func New(store Store, options ...Option) (*Locker, error) {
	if store == nil {
		return nil, &InvalidError{Field: "store", Reason: "must not be nil"}
	}
	c := config{
		lease:        leaseConfig{ttl: DefaultTTL},
		releaseLimit: DefaultReleaseLimit,
		callLimit:    DefaultCallLimit,
		minBackoff:   DefaultMinBackoff,
		maxBackoff:   DefaultMaxBackoff,
	}
	for _, option := range options {
		if option == nil {
			return nil, &InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option.applyLocker(&c); err != nil {
			return nil, err
		}
	}
	settled := c.lease // a copy: an acquire with another TTL has other defaults that follow from it
	if err := settled.settle(); err != nil {
		return nil, err
	}
	l := &Locker{
		store:   store,
		config:  c,
		freeing: make(chan struct{}, 2),
		closing: make(chan struct{}),
		leases:  make(map[*Lease]struct{}),
		idle:    make(chan struct{}),
	}
	l.left = l.leave
	return l, nil
}

// Get returns the live lease of the resource, whoever holds it. Errors: [ErrNotFound], [ErrInvalid], or the fault.
func (l *Locker) Get(ctx context.Context, resource string) (Lock, error) {
	if err := ValidateResource(resource); err != nil {
		return Lock{}, err
	}
	return ask(ctx, l, l.config.callLimit, func(ctx context.Context) (Lock, error) {
		return l.store.Get(ctx, resource)
	}, nil)
}

// Waiters returns how many wait for the resource, in all processes, and who the first ones are, at most limit of them and
// at most 1,000: the place of the i-th is i+1. It is a look at one instant, of which an acquire need not take notice.
//
// Errors: [ErrInvalid], also where the store has no queue; or the fault.
func (l *Locker) Waiters(ctx context.Context, resource string, limit int) (Queue, error) {
	queuer, ok := l.store.(Queuer)
	if !ok {
		return Queue{}, &InvalidError{Field: "store", Reason: "has no queue"}
	}
	if err := ValidateWaiters(resource, limit); err != nil {
		return Queue{}, err
	}
	return ask(ctx, l, l.config.callLimit, func(ctx context.Context) (Queue, error) {
		return queuer.Waiters(ctx, resource, limit)
	}, nil)
}

// prepare makes the request of one acquire.
func (l *Locker) prepare(resource string, options []AcquireOption) (acquisition, error) {
	a := acquisition{request: Request{Resource: resource}, lease: l.config.lease}
	for _, option := range options {
		if option == nil {
			return a, &InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option.applyAcquire(&a); err != nil {
			return a, err
		}
	}
	if err := a.lease.settle(); err != nil {
		return a, err
	}
	if a.request.Owner == "" {
		a.request.Owner = rand.Text()
	}
	a.named = a.request.Attempt != ""
	if !a.named {
		a.request.Attempt = rand.Text()
	}
	a.request.TTL, a.request.Barge = a.lease.ttl, a.lease.barge
	if a.request.Slots != 0 {
		if _, err := l.sharer(); err != nil {
			return a, err
		}
	}
	return a, a.request.Validate()
}

// prepareExclusive is prepare for what is no share: an acquire in a transaction.
func (l *Locker) prepareExclusive(resource string, options []AcquireOption) (acquisition, error) {
	a, err := l.prepare(resource, options)
	if err != nil {
		return a, err
	}
	return a, a.request.ValidateExclusive()
}

// enter counts something that Close waits for, or refuses it with ErrClosed.
func (l *Locker) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.busy++
	return nil
}

// begin counts what must be done even while the locker closes.
func (l *Locker) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
}

func (l *Locker) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked()
}

func (l *Locker) leaveLocked() {
	l.busy--
	if l.busy == 0 && l.closed {
		select {
		case <-l.idle: // a call came back after the locker had been idle once
		default:
			close(l.idle)
		}
	}
}

// ask calls the store, for no longer than limit and whatever its driver does. An answer that comes later goes to late,
// if that is not nil. The locker is busy until the call has come back.
func ask[T any](ctx context.Context, l *Locker, limit time.Duration, fn func(context.Context) (T, error), late func(T, error)) (T, error) {
	l.begin()
	value, err := call.Tracked(ctx, limit, fn, late, l.left)
	return value, faultOf(ctx, err)
}

// isAnswer reports whether the store said what is the case, so that nothing about the call is unknown.
func isAnswer(err error) bool {
	for _, answer := range []error{ErrHeld, ErrSlots, ErrLost, ErrGuarded, ErrRetryable, ErrNotFound, ErrInvalid} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// faultOf makes a context's end recognisable, whatever the driver called it.
func faultOf(ctx context.Context, err error) error {
	ended := ctx.Err()
	if err == nil || ended == nil || errors.Is(err, ended) || isAnswer(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ended, err)
}
