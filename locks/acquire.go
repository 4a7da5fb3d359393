package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// TryAcquire acquires the resource, or says at once that it is held, or that others wait for it. The lease is renewed until it is released.
//
// The context bounds the call, not the lease: the lease's context keeps its values, not its end. When TryAcquire
// fails in a way that leaves it unknown whether the store granted the lease, it frees that grant in the background.
//
// Errors: [*HeldError] with what is known of the holder; [*SlotsError] where the resource is shared in another way than is
// asked for, or its owner would wait for itself; [ErrBusy]; [ErrClosed]; [ErrInvalid]; [*LostError] when the store
// answered too late for its TTL; a context's end; or the store's fault, which is never [ErrHeld].
func (l *Locker) TryAcquire(ctx context.Context, resource string, options ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, resource, false, options)
}

// Acquire acquires the resource and waits while it is held, until the context ends. Where the store is a [Queuer], as all of
// this project's are, those who wait in any process are served in the order in which they came, and are woken when it is
// their turn; the TTL begins with the grant. The place of a waiter lasts as long as its process keeps it: one that was
// paused for longer queues again, at the end. When the context ends the place is given up at once, in the background. In a
// store without a queue it tries again after pauses that grow (see [WithBackoff]), and no later than the holder's
// lease can end. A wait also outlives a busy database, and one that fails for up to 10 s.
//
// Otherwise it is [Locker.TryAcquire]. Errors: a context's end, joined with what the last try before it met: [ErrHeld],
// with what is known of the holder, or a fault; [ErrQueueFull] (see [WithMaxWaiters]); otherwise as TryAcquire, but for
// [*HeldError] and [ErrBusy].
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
	start, tries, c := time.Now(), 0, new(claim)
	var lease *Lease
	try := func() (*Lease, error) {
		tries++
		lease, err := l.try(ctx, &a, c)
		if unanswered(err) {
			c.open()
		}
		return lease, err
	}
	if wait {
		lease, err = waitFor(ctx, l.waiting(ctx, &a, start), try)
	} else {
		lease, err = try()
	}
	if err != nil && c.isOpen() {
		l.abandon(ctx, a, c)
	}
	l.observeAcquire(ctx, a.request, lease, start, tries, err)
	return lease, err
}

// observeAcquire tells the observers how an acquire ended.
func (l *Locker) observeAcquire(ctx context.Context, request Request, lease *Lease, start time.Time, tries int, err error) {
	event := Event{
		Grant: Grant{Resource: request.Resource, Owner: request.Owner}, Elapsed: time.Since(start), Tries: tries, Err: err,
	}
	switch {
	case err == nil:
		event.Kind, event.Grant = EventAcquired, lease.grant
	case errors.Is(err, ErrHeld) && ctx.Err() == nil:
		event.Kind = EventRefused
	default:
		event.Kind = EventAcquireFailed
	}
	l.config.observe(ctx, event)
}

// try asks the store once and makes a lease of its grant. It changes the attempt where it must ask for a new grant.
func (l *Locker) try(ctx context.Context, a *acquisition, c *claim) (*Lease, error) {
	for again := 2; ; again-- {
		asked, sent := *a, time.Now()
		lock, err := ask(ctx, l, l.config.callLimit, func(ctx context.Context) (Lock, error) {
			return l.store.Acquire(ctx, asked.request)
		}, func(_ Lock, err error) {
			if err == nil && c.ended() { // granted after all, to nobody
				l.abandon(ctx, asked, c)
			}
		})
		if err != nil {
			return nil, err
		}
		lease := newLease(ctx, l, *a, lock, sent)
		lease.claim = c
		overdue := lease.overdue()
		switch {
		case overdue == nil:
			if !l.keep(lease) {
				l.abandon(ctx, *a, c)
				return nil, ErrClosed
			}
			return lease, nil
		case again == 0 || ctx.Err() != nil:
			l.abandon(ctx, *a, c)
			return nil, overdue
		}
		// The grant is over before it can be used: it is an old one that a lost answer had left, or the store was slow.
		// A new attempt of the same owner takes it over in place.
		a.request.Attempt, a.named = rand.Text(), false
	}
}

// unanswered reports whether err leaves it open what the store did.
func unanswered(err error) bool {
	return err != nil && !isAnswer(err) && !errors.Is(err, ErrClosed)
}

// pause waits for d, unless the context ends or the locker closes.
func (l *Locker) pause(ctx context.Context, d time.Duration) error { return pause(ctx, l.closing, d) }

// waiting is a wait for what the request asks for. Its place, and what is left to do in the end, keep the locker busy.
func (l *Locker) waiting(ctx context.Context, a *acquisition, start time.Time) *waiting {
	return &waiting{
		WaitOptions: WaitOptions{
			MaxWaiters: a.lease.maxWaiters, MinBackoff: l.config.minBackoff, MaxBackoff: l.config.maxBackoff,
			CallLimit: l.config.callLimit, Closing: l.closing,
			Background: func(fn func()) {
				l.begin()
				go func() {
					defer l.leave()
					fn()
				}()
			},
		},
		store: l.store, request: &a.request,
		queued: func(waiter Waiter) {
			l.config.observe(ctx, Event{
				Kind: EventQueued, Grant: Grant{Resource: waiter.Resource, Owner: waiter.Owner}, Elapsed: time.Since(start),
			})
		},
	}
}
