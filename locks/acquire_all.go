package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// TryAcquireAll acquires all of the resources, at most 100, or none, in one try: no other acquire ever sees a part of
// them held, and two such acquires never block each other, in whatever order they name the resources. All leases have
// the same owner. The store must be a [MultiAcquirer].
//
// Otherwise it is [Locker.TryAcquire] for each of them. Errors: [*HeldError] of one that is held; [*SlotsError] of one
// that the owner has a share of; [ErrInvalid], also for resources that are none, too many, or the same; [ErrBusy]; [ErrClosed];
// a context's end; or the store's fault.
func (l *Locker) TryAcquireAll(ctx context.Context, resources []string, options ...AcquireOption) (*LeaseSet, error) {
	return l.acquireAll(ctx, resources, false, options)
}

// AcquireAll is [Locker.TryAcquireAll], and waits while one of the resources is held: it tries again after pauses that grow
// (see [WithBackoff]), and no later than the holder's lease can end. It holds none of them and has no place in their queues
// while it waits, and takes none that others wait for: where always somebody waits it can wait long.
//
// Errors: those of TryAcquireAll; a context's end, joined with what the last try before it met.
func (l *Locker) AcquireAll(ctx context.Context, resources []string, options ...AcquireOption) (*LeaseSet, error) {
	return l.acquireAll(ctx, resources, true, options)
}

func (l *Locker) acquireAll(ctx context.Context, resources []string, wait bool, options []AcquireOption) (*LeaseSet, error) {
	store, ok := l.store.(MultiAcquirer)
	if !ok {
		return nil, &InvalidError{Field: "store", Reason: fmt.Sprintf("must be a MultiAcquirer to acquire several resources at once, got %T", l.store)}
	}
	parts, err := l.prepareAll(resources, options)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	start, tries := time.Now(), 0
	var set *LeaseSet
	try := func() (*LeaseSet, error) {
		tries++
		return l.tryAll(ctx, store, parts)
	}
	if wait {
		wait := l.waiting(ctx, &parts[0].acquisition, start)
		wait.store = nil // no queue: a place in one would keep others out of it for nothing
		set, err = waitFor(ctx, wait, try)
	} else {
		set, err = try()
	}
	if err != nil && parts[0].claim.isOpen() {
		parts.abandon(ctx, l)
	}
	for i := range parts {
		var lease *Lease
		if err == nil {
			lease = set.leases[i]
		}
		l.observeAcquire(ctx, parts[i].request, lease, start, tries, err)
	}
	return set, err
}

// part is one resource of an acquire of several.
type part struct {
	acquisition
	claim *claim
}

type parts []part

func (l *Locker) prepareAll(resources []string, options []AcquireOption) (parts, error) {
	if err := validCount(len(resources)); err != nil { // before anything is made for each of them
		return nil, err
	}
	resources = slices.Sorted(slices.Values(resources))
	first, err := l.prepare(resources[0], options)
	if err != nil {
		return nil, err
	}
	all := make(parts, len(resources))
	requests := make([]Request, len(resources))
	for i, resource := range resources {
		all[i] = part{first, new(claim)}
		all[i].request.Resource = resource
		requests[i] = all[i].request
	}
	return all, ValidateAll(requests)
}

// abandon frees in the background what they were granted or may yet be.
func (p parts) abandon(ctx context.Context, l *Locker) {
	for _, part := range p {
		l.abandon(ctx, part.acquisition, part.claim)
	}
}

// requests returns what to ask the store for.
func (p parts) requests() []Request {
	requests := make([]Request, len(p))
	for i, part := range p {
		requests[i] = part.request
	}
	return requests
}

// renameAttempt makes what is asked for next a new grant.
func (p parts) renameAttempt() {
	attempt := rand.Text()
	for i := range p {
		p[i].request.Attempt, p[i].named = attempt, false
	}
}

// tryAll asks the store once and makes leases of its grants. As try it changes the attempt where it must ask for new ones.
func (l *Locker) tryAll(ctx context.Context, store MultiAcquirer, all parts) (*LeaseSet, error) {
	for again := 2; ; again-- {
		sent := time.Now()
		granted, err := l.askAll(ctx, store, slices.Clone(all))
		if err != nil {
			return nil, err
		}
		leases := make([]*Lease, len(all))
		var overdue error
		for i, part := range all {
			leases[i] = newLease(ctx, l, part.acquisition, granted[i], sent)
			leases[i].claim = part.claim
			overdue = errors.Join(overdue, leases[i].overdue())
		}
		switch {
		case overdue == nil:
			if !l.keepAll(leases) {
				all.abandon(ctx, l)
				return nil, ErrClosed
			}
			return newLeaseSet(ctx, leases), nil
		case again == 0 || ctx.Err() != nil:
			all.abandon(ctx, l)
			return nil, overdue
		}
		all.renameAttempt() // it takes them over in place
	}
}

// askAll asks the store once.
func (l *Locker) askAll(ctx context.Context, store MultiAcquirer, all parts) ([]Lock, error) {
	requests := all.requests()
	granted, err := ask(ctx, l, l.config.callLimit, func(ctx context.Context) ([]Lock, error) {
		return store.AcquireAll(ctx, requests)
	}, func(_ []Lock, err error) {
		for _, part := range all {
			if err == nil && part.claim.ended() { // granted after all, to nobody
				l.abandon(ctx, part.acquisition, part.claim)
			}
		}
	})
	if err == nil && len(granted) != len(all) {
		err = fmt.Errorf("the store granted %d of %d resources", len(granted), len(all))
	}
	if unanswered(err) {
		for _, part := range all {
			part.claim.open()
		}
	}
	return granted, err
}
