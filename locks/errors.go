package locks

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels to branch on with [errors.Is]. What carries facts is a type: [*HeldError], [*LostError], [*InvalidError].
// A context's end is [context.DeadlineExceeded] or [context.Canceled], whatever the driver called it.
var (
	// ErrHeld: somebody else holds the resource, or another transaction is just changing its lease. It is an answer, not a
	// fault: no database error is ever reported as held, but the one that is this very answer (NOWAIT, package rowlock).
	ErrHeld = errors.New("locks: resource is held")

	// ErrQueueFull: the resource is held, and as many wait for it as may. It is also ErrHeld.
	ErrQueueFull error = &kind{"locks: queue of the resource is full", ErrHeld}

	// ErrLost is the family of answers "that grant is not current": each of the next four is also ErrLost.
	ErrLost = errors.New("locks: lease is lost")
	// ErrNotHeld: the resource has no live lease and no trace of this grant.
	ErrNotHeld error = &kind{"locks: lease is lost: not held", ErrLost}
	// ErrExpired: the grant's own row, ended by time.
	ErrExpired error = &kind{"locks: lease is lost: expired", ErrLost}
	// ErrNotOwner: another owner holds the resource.
	ErrNotOwner error = &kind{"locks: lease is lost: held by another owner", ErrLost}
	// ErrSuperseded: the same owner holds the resource under another grant.
	ErrSuperseded error = &kind{"locks: lease is lost: superseded by another grant of its owner", ErrLost}

	// ErrGuarded: a transaction guards the lease, so that it cannot be ended now.
	ErrGuarded = errors.New("locks: lease is guarded by a transaction")

	// ErrRetryable is the family of faults that a new try (where a transaction is named: a new transaction) may not
	// meet again: each of the next three is also ErrRetryable.
	ErrRetryable = errors.New("locks: try again")
	// ErrBusy: another transaction had what the call needs for longer than a limit: the writer of an SQLite file, a row's
	// or relation's lock under PostgreSQL's lock_timeout.
	ErrBusy error = &kind{"locks: database is busy", ErrRetryable}
	// ErrSerialization: the database could not serialise the transaction, or broke a deadlock at its cost.
	ErrSerialization error = &kind{"locks: transaction could not be serialised", ErrRetryable}
	// ErrStaleSnapshot: the transaction's snapshot is older than the grant, or (SQLite) than what somebody wrote since.
	ErrStaleSnapshot error = &kind{"locks: transaction's snapshot is too old", ErrRetryable}

	// ErrNotFound: no live lease of that name.
	ErrNotFound = errors.New("locks: no such lease")
	// ErrClosed: the locker is closed, or closing.
	ErrClosed = errors.New("locks: locker is closed")
	// ErrPending: a transaction that acquires, renews or releases the lease has not ended, as far as its handle was told.
	ErrPending = errors.New("locks: lease is being changed by an open transaction")
	// ErrRolledBack is the cause in the [*LostError] of a lease whose acquiring transaction was rolled back.
	ErrRolledBack = errors.New("locks: transaction that acquired the lease was rolled back")
	// ErrReleased is the cause of a lease's context that ended by [Lease.Release].
	ErrReleased = errors.New("locks: lease is released")
	// ErrMaxHold is the cause of a lease's context that ended by [WithMaxHold].
	ErrMaxHold = errors.New("locks: lease was held for its longest time")
	// ErrInvalid: an argument or an option breaks a rule; the error is an [*InvalidError] that names it.
	ErrInvalid = errors.New("locks: invalid")
)

// kind is a sentinel that belongs to a family.
type kind struct {
	text   string
	family error
}

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.family }

// HeldError is the answer "held", with what is known of the holder. It is [ErrHeld].
type HeldError struct {
	Resource string
	// Holder is the live lease, or nil when it is not known: another transaction is just changing it.
	Holder *Lock
	// Remaining is the time that was left on the holder's lease by the store's clock, 0 when it is not known. The
	// holder may renew, or release early.
	Remaining time.Duration
}

// Error says what is held and for how long; it never tells the holder's name.
func (e *HeldError) Error() string {
	if e.Holder == nil {
		return fmt.Sprintf("locks: resource %q is held", e.Resource)
	}
	return fmt.Sprintf("locks: resource %q is held for up to %v", e.Resource, e.Remaining.Round(time.Millisecond))
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Held returns the answer "held by holder" to a request for the resource; holder is nil when it is not known.
func Held(resource string, holder *Lock) *HeldError {
	e := &HeldError{Resource: resource, Holder: holder}
	if holder != nil {
		e.Remaining = holder.Remaining
	}
	return e
}

// LostError says that a grant is not current, and why. It is [ErrLost] and its Reason.
type LostError struct {
	Grant Grant
	// Reason is [ErrNotHeld], [ErrExpired], [ErrNotOwner] or [ErrSuperseded].
	Reason error
	// Cause is what led to it, or nil: for a lease whose local deadline passed, the last failed renewal.
	Cause error
}

// Error says what is lost and why; it never tells the name of another holder.
func (e *LostError) Error() string {
	text := fmt.Sprintf("%v: resource %q, token %d", e.Reason, e.Grant.Resource, e.Grant.Token)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the reason and the cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// Refuse is how every store words a refused renew or release. Current is the resource's row as it stands, nil where
// there is none, and live tells whether it is unexpired. A row that matches the grant and is live returns nil: the
// grant is current.
func Refuse(grant Grant, current *Lock, live bool) error {
	lost := func(reason error) error { return &LostError{Grant: grant, Reason: reason} }
	if current == nil {
		return lost(ErrNotHeld)
	}
	mine := current.Owner == grant.Owner && (grant.Token == AnyToken || current.Token == grant.Token)
	switch {
	case mine && live:
		return nil
	case mine:
		return lost(ErrExpired)
	case !live: // expired means gone: somebody else's ended lease is nobody's
		return lost(ErrNotHeld)
	case current.Owner != grant.Owner:
		return lost(ErrNotOwner)
	default:
		return lost(ErrSuperseded)
	}
}

// InvalidError names the argument or option that breaks a rule. It is [ErrInvalid]. Nothing was changed.
type InvalidError struct {
	// Field is the argument's or option's name: resource, owner, token, ttl, metadata, attempt, limit, …
	Field string
	// Reason completes the sentence "<field> …".
	Reason string
}

// Error names the field and the rule.
func (e *InvalidError) Error() string { return "locks: " + e.Field + " " + e.Reason }

// Is reports whether target is [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
