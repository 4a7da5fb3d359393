package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a grant in the holder's hand: renewed by itself until it is released, lost, or its locker closes. It is
// safe for concurrent use. Whoever acquired it releases it, once the work under it has returned.
type Lease struct {
	locker *Locker
	grant  Grant
	start  time.Time
	made   acquisition // what it was made of
	claim  *claim

	// ctx is the signal a lease gives, not the context of a call.
	ctx    context.Context //nolint:containedctx // it lives as long as the lease does and is handed out by Context
	cancel context.CancelCauseFunc

	renewing chan struct{} // holds one element while somebody waits for a renewal
	over     chan struct{} // closed when renewal ends: released, lost, or held for its longest time
	released chan struct{} // closed when the first Release has its result

	mu        sync.Mutex
	lock      Lock
	deadline  time.Time // when trust ends, on the monotonic clock
	answered  time.Time // when the request was sent whose answer the two above are of
	failure   error     // of the last renewal, nil when it went well
	lost      error     // a *LostError once the lease is lost
	told      bool      // lost by the store's word, not by the deadline
	isOver    bool
	releasing bool

	releaseBegan time.Time
	result       error // of Release

	// What transactions that have not ended do to the lease: see lease_tx.go.
	inTx    int         // how many changes; while there is one, nothing renews
	pending bool        // its acquire is one of them
	leaving int         // how many of them are releases
	isLate  bool        // Release was called meanwhile
	late    *time.Timer // until it is carried out, at their end: whoever stops it does so
	undone  bool        // its acquire was rolled back

	// Timers instead of a goroutine: an idle lease costs no stack. All are set when the lease is kept; holdTimer and
	// renewTimer are nil where there is no longest time and no renewal.
	deadlineTimer, holdTimer, renewTimer *time.Timer
	retries                              backoff // of the renewal
}

// newLease makes a lease of a grant that a request sent at that instant got. Nothing runs yet.
func newLease(ctx context.Context, locker *Locker, a acquisition, lock Lock, sent time.Time) *Lease {
	return &Lease{
		locker: locker, grant: lock.Grant(), start: sent, made: a, lock: lock,
		ctx: context.WithoutCancel(ctx), deadline: deadlineOf(a.lease, lock, sent), answered: sent,
		renewing: make(chan struct{}, 1), over: make(chan struct{}), released: make(chan struct{}),
	}
}

// deadlineOf is when trust in an answer ends. The store measured what remained after the request was sent, so counting
// from the sending can only end trust early; a slow answer cannot stretch it. A grant that a retry found again has less
// than its TTL left, and says so.
func deadlineOf(config leaseConfig, lock Lock, sent time.Time) time.Time {
	return sent.Add(min(lock.Remaining, config.ttl) - config.margin)
}

// overdue returns the loss of a lease whose deadline has passed before it could be used, or nil.
func (l *Lease) overdue() error {
	if time.Until(l.deadline) > 0 {
		return nil
	}
	return &LostError{Grant: l.grant, Reason: ErrExpired, Cause: fmt.Errorf(
		"the store's answer took %v, and the grant had %v left of a TTL of %v", time.Since(l.start), l.lock.Remaining, l.made.lease.ttl)}
}

// keep starts the lease's timers and renewal, unless the locker is closed.
func (l *Locker) keep(lease *Lease) bool { return l.keepAll([]*Lease{lease}) }

// keepAll keeps all of the leases or none.
func (l *Locker) keepAll(leases []*Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	for _, lease := range leases {
		l.leases[lease] = struct{}{}
		l.busy++
		lease.begin()
	}
	return true
}

// begin starts the timers.
func (l *Lease) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx, l.cancel = context.WithCancelCause(l.ctx)
	l.deadlineTimer = time.AfterFunc(time.Until(l.deadline), l.checkDeadline)
	if l.made.lease.maxHold > 0 {
		l.holdTimer = time.AfterFunc(l.made.lease.maxHold, l.endHold)
	}
	if !l.made.lease.manual {
		l.retries = l.newRetries()
		l.renewTimer = time.AfterFunc(time.Until(l.renewalDueLocked()), l.renewNow)
		if l.pending {
			l.renewTimer.Stop()
		}
	}
}

// forget takes a lease that is released or lost off the locker's list.
func (l *Locker) forget(lease *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, kept := l.leases[lease]; kept {
		delete(l.leases, lease)
		l.leaveLocked()
	}
}

// Context returns the lease's context. It has the values of the acquire's context, not its end. It ends when the lease
// is released, lost, or held for its longest time, or when the locker closes; [context.Cause] tells: [ErrReleased], a
// [*LostError], [ErrMaxHold] or [ErrClosed]. A lease that ends by time ends its context a margin before that,
// whatever the store's calls do; a lease that somebody else ended, at the next renewal.
func (l *Lease) Context() context.Context { return l.ctx }

// Err returns nil while the lease is trusted, then the cause of its context's end. It looks at the deadline itself: a
// process that was stopped hears from Err even before its timers have run.
func (l *Lease) Err() error {
	if l.ctx.Err() == nil && !time.Now().Before(l.Deadline()) {
		l.checkDeadline()
	}
	return context.Cause(l.ctx)
}

// Resource returns the guarded name.
func (l *Lease) Resource() string { return l.grant.Resource }

// Owner returns the name it is held under.
func (l *Lease) Owner() string { return l.grant.Owner }

// Token returns the fencing token: write it beside what the lease protects, and refuse older ones there.
func (l *Lease) Token() int64 { return l.grant.Token }

// Grant returns the grant, the name of this lease for the store's methods.
func (l *Lease) Grant() Grant { return l.grant }

// Lock returns the record as of the grant or the last renewal.
func (l *Lease) Lock() Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lock
}

// Deadline returns the instant, on the application's clock, until which the lease is trusted unless it is renewed.
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// checkDeadline runs when a deadline was reached; a renewal may have moved it meanwhile.
func (l *Lease) checkDeadline() {
	l.mu.Lock()
	left := time.Until(l.deadline)
	if left > 0 {
		if l.lost == nil && !l.releasing {
			l.deadlineTimer.Reset(left)
		}
		l.mu.Unlock()
		return
	}
	lost := &LostError{Grant: l.grant, Reason: ErrExpired, Cause: l.failure}
	l.mu.Unlock()
	l.lose(lost, false)
}

// endHold runs when the lease was held for its longest time. The deadline goes on: the lease is lost when that is over.
func (l *Lease) endHold() {
	l.mu.Lock()
	l.endRenewalLocked()
	l.mu.Unlock()
	l.cancel(ErrMaxHold)
}

func (l *Lease) endRenewalLocked() {
	if !l.isOver {
		l.isOver = true
		close(l.over)
	}
}

// lose ends the lease before its release; told is whether the store said so.
func (l *Lease) lose(lost *LostError, told bool) {
	l.mu.Lock()
	if l.lost != nil || l.releasing {
		l.mu.Unlock()
		return
	}
	l.lost, l.told = lost, told
	l.endRenewalLocked()
	l.stopTimersLocked()
	l.mu.Unlock()
	l.cancel(lost)
	l.locker.config.observe(l.ctx, l.endEvent(lost))
	if told && l.claim.isOpen() { // a request without an answer may yet be carried out, for nobody
		l.endClaim(l.ctx)
	}
	l.locker.forget(l)
}

func (l *Lease) endEvent(lost *LostError) Event {
	kind := EventLost
	if errors.Is(lost, ErrRolledBack) {
		kind = EventRolledBack
	}
	return Event{Kind: kind, Grant: l.grant, Elapsed: time.Since(l.start), Err: lost}
}

// loss returns the LostError of a lease that is lost, or nil.
func (l *Lease) loss() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *Lease) stopTimersLocked() {
	for _, timer := range []*time.Timer{l.deadlineTimer, l.holdTimer, l.renewTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
}
