package locks

import (
	"context"
	"errors"
	"fmt"
)

// Shared in [Request].Slots asks for one of any number of shares, as readers do.
const Shared = -1

// MaxSlots is how many shares of a resource can be counted.
const MaxSlots = 10_000

// Sharer is a store that can give one resource to several at once: to any number (readers), or to at most so many (a
// semaphore). Its Acquire takes [Request].Slots, and its other methods take grants of shares as they take others.
//
// Those who hold shares of a resource at the same time are a group. What kind it is, its slots, stands with the first of
// them until the last one is gone: a request with other slots is refused, [*SlotsError], and not one that waits, since the
// two callers do not agree on what the resource is. An exclusive request is refused as held, and waits for all of the group.
// The shares of one owner are one: another acquire of it is a new grant of its share in place.
//
// Each share is a lease of its own, with its own end and its own token, which is larger than every token of the resource
// before. [Store.Get] and [Lister] show the group, as a lease without an owner that ends with the last of its shares;
// a [ForceReleaser] ends it, with all of its shares, by the group's token, or one of them by that one's. Renewing
// a share to an earlier end gives its slot back at that end, and the resource then, too; who waits finds that by looking. A
// grant that is none of a live group's shares, such as one that was released, is refused as [ErrNotOwner].
//
// Shares are acquired, renewed and released outside of transactions, and guarded in them ([Tx.Guard]): who guards a share
// keeps out those whom the share keeps out. They wait in the same queue as all others, in the order in which they came: a
// reader that comes after a waiting writer gets in after it.
type Sharer interface {
	// Holders returns the live shares of the resource in the order of their tokens, at most limit of them: none where nobody
	// holds it, or one alone does. Errors: [ErrInvalid].
	Holders(ctx context.Context, resource string, limit int) ([]Lock, error)
}

// MaxListHolders is how many shares one call of [Sharer.Holders] returns at most.
const MaxListHolders = 1000

// ErrSlots: the resource is held in a way that the request does not fit to, and waiting would be wrong; the error is a
// [*SlotsError].
var ErrSlots = errors.New("locks: resource is held with other slots")

// SlotsError refuses a request that does not agree with how the resource is held: shares of other slots; or the owner of the
// request holds the resource itself, alone or with a share, and would wait for itself. It is [ErrSlots].
type SlotsError struct {
	Resource string
	// Held is how the resource is held, see [Lock].Slots, and Asked is what the request asks for.
	Held, Asked int
}

// Error says how it is held and what was asked for.
func (e *SlotsError) Error() string {
	return fmt.Sprintf("locks: resource %q is held %s, not %s", e.Resource, slotsText(e.Held), slotsText(e.Asked))
}

// Is reports whether target is [ErrSlots].
func (e *SlotsError) Is(target error) bool { return target == ErrSlots }

func slotsText(slots int) string {
	switch slots {
	case 0:
		return "exclusively"
	case Shared:
		return "shared"
	default:
		return fmt.Sprintf("in %d slots", slots)
	}
}

// ValidateSlots reports, as an [*InvalidError], a number of slots that is none: it is 0, [Shared], or from 1 to 10,000.
func ValidateSlots(slots int) error {
	if slots < Shared || slots > MaxSlots {
		return &InvalidError{Field: "slots", Reason: fmt.Sprintf(
			"must be from 1 to %d, 0 (exclusive) or %d (shared), got %d", MaxSlots, Shared, slots,
		)}
	}
	return nil
}

// ValidateHolders reports, as an [*InvalidError], the first argument of [Sharer.Holders] that breaks a rule.
func ValidateHolders(resource string, limit int) error {
	if err := ValidateResource(resource); err != nil {
		return err
	}
	return validateLimit(limit, MaxListHolders)
}

// ValidateExclusive is [Request.Validate] for what does not take shares: [Tx.Acquire] and [MultiAcquirer].
func (r Request) ValidateExclusive() error {
	if err := r.Validate(); err != nil {
		return err
	}
	if r.Slots != 0 {
		return &InvalidError{Field: "slots", Reason: fmt.Sprintf(
			"must be 0 here: a share is acquired by itself, and outside of a transaction, got %d", r.Slots,
		)}
	}
	return nil
}

// WithShared acquires a share of the resource, together with any number of others: readers, who keep out whoever acquires it
// alone. See [Sharer]. An acquire with it can also fail with [*SlotsError], and is refused as [ErrInvalid] by a store that is no
// Sharer, in a transaction, and for several resources at once.
func WithShared() AcquireOption { return withSlots(Shared) }

// WithSlots acquires one of n shares of the resource, from 1 to 10,000: a semaphore. N stands with the first holder: as long
// as anybody has a share, another n is refused with [*SlotsError]. See [Sharer], and [WithShared] for the errors.
func WithSlots(n int) AcquireOption {
	if n < 1 {
		return acquireFunc(func(*acquisition) error {
			return &InvalidError{Field: "slots", Reason: fmt.Sprintf("must be from 1 to %d, got %d", MaxSlots, n)}
		})
	}
	return withSlots(n)
}

func withSlots(slots int) AcquireOption {
	return acquireFunc(func(a *acquisition) error {
		a.request.Slots = slots
		return ValidateSlots(slots)
	})
}

// Holders returns the live shares of the resource, at most limit of them and at most 1,000, in the order of their tokens.
// [Locker.Get] tells whether somebody holds it alone.
//
// Errors: [ErrInvalid], also where the store has no shares; or the fault.
func (l *Locker) Holders(ctx context.Context, resource string, limit int) ([]Lock, error) {
	sharer, err := l.sharer()
	if err != nil {
		return nil, err
	}
	if err := ValidateHolders(resource, limit); err != nil {
		return nil, err
	}
	return ask(ctx, l, l.config.callLimit, func(ctx context.Context) ([]Lock, error) {
		return sharer.Holders(ctx, resource, limit)
	}, nil)
}

func (l *Locker) sharer() (Sharer, error) {
	sharer, ok := l.store.(Sharer)
	if !ok {
		return nil, &InvalidError{Field: "store", Reason: "has no shared leases"}
	}
	return sharer, nil
}
