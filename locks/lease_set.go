package locks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// LeaseSet is the leases of one [Locker.AcquireAll]. Each is renewed by itself; the set's context ends when the first of
// them ends. It is safe for concurrent use. Whoever acquired it releases it.
type LeaseSet struct {
	leases []*Lease        // in byte order of their resources
	ctx    context.Context //nolint:containedctx // as a Lease's: handed out by Context
	cancel context.CancelCauseFunc
}

func newLeaseSet(ctx context.Context, leases []*Lease) *LeaseSet {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	for _, lease := range leases {
		context.AfterFunc(lease.ctx, func() { cancel(context.Cause(lease.ctx)) })
	}
	return &LeaseSet{leases, ctx, cancel}
}

// Context returns the set's context: it has the values of the acquire's context, and ends with the first of the leases;
// [context.Cause] tells which and why.
func (s *LeaseSet) Context() context.Context { return s.ctx }

// Err returns nil while all leases are trusted, then why the first one was not. Like [Lease.Err] it looks at the deadlines
// itself.
func (s *LeaseSet) Err() error {
	for _, lease := range s.leases {
		if err := lease.Err(); err != nil {
			if cause := context.Cause(s.ctx); cause != nil {
				return cause
			}
			return err
		}
	}
	return context.Cause(s.ctx)
}

// Leases returns the leases in byte order of their resources.
func (s *LeaseSet) Leases() []*Lease { return slices.Clone(s.leases) }

// Lease returns the lease of the resource, or nil when the set has none of it.
func (s *LeaseSet) Lease(resource string) *Lease {
	i, found := slices.BinarySearchFunc(s.leases, resource, func(lease *Lease, resource string) int {
		return strings.Compare(lease.Resource(), resource)
	})
	if !found {
		return nil
	}
	return s.leases[i]
}

// GuardTx guards every lease of the set inside the caller's transaction, in their order, as [Lease.GuardTx] does, and
// stops at the first that fails.
func (s *LeaseSet) GuardTx(ctx context.Context, tx Tx) error {
	for _, lease := range s.leases {
		if err := lease.GuardTx(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

// releasesAtOnce bounds how many connections the release of a set asks for.
const releasesAtOnce = 4

// Release releases every lease of the set, as [Lease.Release] does, a few at a time; one that fails does not stop the
// others. The contexts and renewals of all end before the first is free, and [WithReleaseLimit] bounds the whole. It
// returns their errors joined.
func (s *LeaseSet) Release(ctx context.Context) error {
	s.cancel(ErrReleased)
	var mine []*Lease // not those that somebody else releases
	for _, lease := range s.leases {
		if lease.beginRelease() {
			mine = append(mine, lease)
		}
	}
	turns := make(chan struct{}, releasesAtOnce)
	var releases sync.WaitGroup
	for _, lease := range mine {
		end := lease.locker.releaseEnd()
		releases.Go(func() { lease.endRelease(ctx, end, turns) })
	}
	releases.Wait()
	errs := make([]error, len(s.leases))
	for i, lease := range s.leases {
		errs[i] = lease.Release(ctx)
	}
	return errors.Join(errs...)
}
