package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxFaults is how many faults in a row a waiting acquire outlives: enough for a connection that was cut or a server
// that restarts, too few to hide a missing table.
const maxFaults = 3

// TryAcquire acquires the resource, or says at once that it is held. The lease is renewed until it is released.
//
// The context bounds the call, not the lease: the lease's context keeps its values, not its end. When TryAcquire
// fails in a way that leaves it unknown whether the store granted the lease, it frees that grant in the background.
//
// Errors: [*HeldError] with what is known of the holder; [ErrBusy]; [ErrClosed]; [ErrInvalid]; a context's end; or the
// store's fault, which is never [ErrHeld].
func (l *Locker) TryAcquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, resource, false, options)
}

// Acquire acquires the resource and waits while it is held, until the context ends: it tries again after pauses that
// grow (see [WithBackoff]), and no later than the holder's lease can end. Those who wait are not served in order. A
// wait also outlives busy databases and a few faults in a row.
//
// Otherwise it is [Locker.TryAcquire]. Errors: a context's end, joined with what the last try before it met: [ErrHeld],
// with what is known of the holder, or a fault; [ErrClosed]; [ErrInvalid]; or the store's fault.
func (l *Locker) Acquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, resource, true, options)
}

func (l *Locker) acquire(ctx context.Context, resource string, wait bool, options []AcquireOption) (*Lease, error) {
	a, err := l.prepare(resource, options)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // nothing is sent, so there is nothing to free
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	start := time.Now()
	var lease *Lease
	tries := 0
	if wait {
		lease, err = l.wait(ctx, a, &tries)
	} else {
		tries = 1
		if lease, err = l.try(ctx, &a); unanswered(err) {
			l.abandon(ctx, a.request)
		}
	}
	event := Event{Grant: Grant{Resource: resource, Owner: a.request.Owner}, Elapsed: time.Since(start), Tries: tries, Err: err}
	switch {
	case err == nil:
		event.Kind, event.Grant = EventAcquired, lease.grant
	case errors.Is(err, ErrHeld) && ctx.Err() == nil:
		event.Kind = EventRefused
	default:
		event.Kind = EventAcquireFailed
	}
	l.config.observe(ctx, event)
	return lease, err
}

// wait tries until there is a lease, the context ends, or there is no hope.
func (l *Locker) wait(ctx context.Context, a acquisition, tries *int) (*Lease, error) {
	var (
		last   error   // what the store said, or how it failed, before the context ended
		faults = 0     // in a row
		lost   = false // some request's answer never came: it may be granted yet
		pauses = backoff{l.config.minBackoff, l.config.maxBackoff}
	)
	giveUp := func(err error) (*Lease, error) {
		if lost {
			l.abandon(ctx, a.request)
		}
		if last != nil && ctx.Err() != nil && !errors.Is(err, last) {
			err = fmt.Errorf("%w: %w", err, last)
		}
		return nil, err
	}
	for {
		*tries++
		lease, err := l.try(ctx, &a)
		sleep := pauses.next()
		var held *HeldError
		switch {
		case err == nil:
			return lease, nil
		case errors.As(err, &held):
			last, faults = err, 0
			if held.Holder != nil && held.Remaining < sleep {
				// The holder may be dead: be there when its lease ends, though not all waiters in the same instant.
				sleep = held.Remaining + jitter(l.config.minBackoff)
			}
		case errors.Is(err, ErrRetryable):
			last, faults = err, 0
		case unanswered(err):
			lost = true
			if ctx.Err() != nil {
				return giveUp(err)
			}
			last = err
			if faults++; faults > maxFaults {
				return giveUp(err)
			}
		default:
			return giveUp(err)
		}
		if err := l.pause(ctx, sleep); err != nil {
			return giveUp(err)
		}
	}
}

// try asks the store once and makes a lease of its grant. It changes the attempt where it must ask for a new grant.
func (l *Locker) try(ctx context.Context, a *acquisition) (*Lease, error) {
	for again := 2; ; again-- {
		request, sent := a.request, time.Now()
		lock, err := call.Do(ctx, l.config.callLimit, func(ctx context.Context) (Lock, error) {
			return l.store.Acquire(ctx, request)
		}, func(_ Lock, err error) {
			if err == nil { // granted after all, to nobody
				l.abandon(ctx, request)
			}
		})
		if err != nil {
			return nil, faultOf(ctx, err)
		}
		lease := newLease(ctx, l, a.lease, lock, sent)
		switch {
		case time.Until(lease.deadline) > 0:
			if !l.keep(lease) {
				l.abandon(ctx, request)
				return nil, ErrClosed
			}
			return lease, nil
		case again == 0 || ctx.Err() != nil:
			l.abandon(ctx, request)
			return nil, &LostError{
				Grant: lock.Grant(), Reason: ErrExpired,
				Cause: fmt.Errorf("the store's answer took %v of a TTL of %v", time.Since(sent), a.lease.ttl),
			}
		}
		// The grant is over before it can be used: it is an old one that a lost answer had left, or the store was slow.
		// A new attempt of the same owner takes it over in place.
		a.request.Attempt = rand.Text()
	}
}

// unanswered reports whether err leaves it open what the store did.
func unanswered(err error) bool {
	return err != nil && !isAnswer(err) && !errors.Is(err, ErrClosed)
}

// pause waits for d, unless the context ends or the locker closes.
func (l *Locker) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closing:
		return ErrClosed
	}
}

// abandon frees in the background what an acquire without an answer may have been granted. The request can still be
// on its way to the store when the first look finds nothing, so it looks again until the release limit has passed, or
// once more when the locker closes. What it cannot free ends by its TTL.
func (l *Locker) abandon(ctx context.Context, request Request) {
	l.begin()
	go func() {
		defer l.leave()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.releaseLimit)
		defer cancel()
		pauses := backoff{l.config.minBackoff, l.config.maxBackoff}
		for last := false; ; {
			select {
			case l.freeing <- struct{}{}:
			case <-ctx.Done():
				return
			}
			_, err := call.Do(ctx, l.config.callLimit, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, l.store.ReleaseAttempt(ctx, request.Resource, request.Owner, request.Attempt)
			}, nil)
			<-l.freeing
			if err == nil || last {
				return
			}
			switch err := l.pause(ctx, l.config.minBackoff+pauses.next()); {
			case errors.Is(err, ErrClosed):
				last = true
			case err != nil:
				return
			}
		}
	}()
}
