package locks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Store is what every engine must do. Each method is one atomic step on the store's clock. A store is safe for
// concurrent use, validates what it is given ([Request.Validate], [Grant.Validate]) before the engine sees it, and
// keeps the promises of package lockstest. An error that is none of the named ones is a fault of the engine, passed
// on with its cause; a fault never means "held". One that is [ErrRetryable] has done nothing and is worth a new try.
type Store interface {
	// Acquire grants the resource to the request's owner when it is free, expired or the owner's own, and returns the
	// new grant, with a larger token than any before. A request whose attempt already has the live grant finds that grant
	// again, unchanged. It never waits for a caller's transaction; of shares ([Request].Slots) it waits for other changes of the
	// same resource's shares, each as short as a statement.
	//
	// Errors: [*HeldError]; [*SlotsError], of a [Sharer]; [ErrInvalid]; [ErrBusy].
	Acquire(ctx context.Context, request Request) (Lock, error)

	// Renew moves the end of a current grant to now + ttl, also to an earlier instant, and changes nothing else. It
	// never inserts a row and never revives an ended lease.
	//
	// Errors: [*LostError] with [ErrNotHeld], [ErrExpired], [ErrNotOwner] or [ErrSuperseded]; [ErrInvalid]; [ErrBusy].
	Renew(ctx context.Context, grant Grant, ttl time.Duration) (Lock, error)

	// Release frees a current grant and leaves no row behind. A grant that is not current is refused, and the newer one
	// is left alone.
	//
	// Errors: as [Store.Renew], and [ErrGuarded].
	Release(ctx context.Context, grant Grant) error

	// ReleaseAttempt frees whatever the attempt of an acquire was granted: for a caller that never saw the answer, and so
	// knows no token.
	//
	// Errors: [*LostError] with [ErrNotHeld], its Grant without a token, when no live grant of that attempt is there;
	// [ErrInvalid]; [ErrBusy]; [ErrGuarded].
	ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error

	// Get returns the live lease of the resource. A resource may be refused though Get finds nothing: another transaction
	// may be just acquiring it.
	//
	// Errors: [ErrNotFound], for a free and for an expired one; [ErrInvalid].
	Get(ctx context.Context, resource string) (Lock, error)
}

// Request asks for a resource.
type Request struct {
	Resource string
	Owner    string
	// Attempt is the identity of this acquire: a retry with the same attempt finds its grant again, a new attempt of
	// the same owner is a new grant. At most 255 bytes, with the rules of a resource.
	Attempt string
	// TTL is how long the lease lasts from the instant of the grant; stores keep at least milliseconds.
	TTL time.Duration
	// Metadata is kept with the lease: nil or one JSON object.
	Metadata json.RawMessage
	// Barge takes a free resource also while others wait for it, see [Queuer].
	Barge bool
	// Slots is 0 to hold the resource alone, [Shared] to hold it with any number of others, or n, at most 10,000, to be one of
	// at most n holders. It is for a [Sharer]; a store that is none must refuse any but 0, see [Request.ValidateExclusive].
	Slots int
}

// Validate reports, as an [*InvalidError], the first field that breaks a rule.
func (r Request) Validate() error {
	if err := ValidateAttempt(r.Resource, r.Owner, r.Attempt); err != nil {
		return err
	}
	if err := ValidateTTL(r.TTL); err != nil {
		return err
	}
	if err := ValidateSlots(r.Slots); err != nil {
		return err
	}
	return ValidateMetadata(r.Metadata)
}

// ValidateAttempt reports, as an [*InvalidError], the first of the three that breaks a rule.
func ValidateAttempt(resource, owner, attempt string) error {
	if err := ValidateResource(resource); err != nil {
		return err
	}
	if err := ValidateOwner(owner); err != nil {
		return err
	}
	return validateName("attempt", attempt, MaxAttemptBytes)
}

// MaxAcquireAll is how many resources one acquire can ask for.
const MaxAcquireAll = 100

// MultiAcquirer is a store that can acquire several resources as one step.
type MultiAcquirer interface {
	// AcquireAll grants all that is asked for, or nothing: a part of it is never seen by anybody. The requests are for
	// different resources, from 1 to 100. It takes them in byte order of their resources, so that two such calls cannot
	// block each other, and returns the locks in the order of the requests. Each is otherwise as by [Store.Acquire], a
	// retry with the same attempts too.
	//
	// Errors: [*HeldError] of a resource that is held; [*SlotsError] of one that its owner has a share of; [ErrInvalid];
	// [ErrBusy].
	AcquireAll(ctx context.Context, requests []Request) ([]Lock, error)
}

// ValidateAll reports, as an [*InvalidError], the first request that breaks a rule, too many or none, and a resource that
// is asked for twice.
func ValidateAll(requests []Request) error {
	if err := validCount(len(requests)); err != nil {
		return err
	}
	seen := make(map[string]struct{}, len(requests))
	for _, request := range requests {
		if err := request.ValidateExclusive(); err != nil {
			return err
		}
		if _, twice := seen[request.Resource]; twice {
			return &InvalidError{Field: "resources", Reason: fmt.Sprintf("must differ, got %q twice", request.Resource)}
		}
		seen[request.Resource] = struct{}{}
	}
	return nil
}

func validCount(resources int) error {
	if resources < 1 || resources > MaxAcquireAll {
		return &InvalidError{Field: "resources", Reason: fmt.Sprintf("must be from 1 to %d, got %d", MaxAcquireAll, resources)}
	}
	return nil
}

// Lister is a store that can list live leases.
type Lister interface {
	// List returns live leases in byte order of their resources, each page one consistent read. Errors: [ErrInvalid].
	List(ctx context.Context, query ListQuery) (Page, error)
}

// Limits of a list.
const (
	// DefaultListLimit is the page size where a query gives none.
	DefaultListLimit = 100
	// MaxListLimit is the largest page.
	MaxListLimit = 1000
)

// ListQuery selects live leases. The zero value selects all.
type ListQuery struct {
	// Prefix keeps the resources that begin with these bytes.
	Prefix string
	// Owner keeps the leases of this owner.
	Owner string
	// After keeps the resources that follow this one in byte order: the last one of the page before.
	After string
	// Limit is the page size, from 1 to 1,000; 0 means 100.
	Limit int
}

// Page is one page of a list.
type Page struct {
	Locks []Lock
	// More tells that leases may follow the last one of Locks.
	More bool
}

// Validate reports, as an [*InvalidError], the first field that breaks a rule, and puts in the default limit.
func (q *ListQuery) Validate() error {
	for _, name := range []struct{ field, value string }{{"prefix", q.Prefix}, {"after", q.After}} {
		if name.value != "" {
			if err := validateName(name.field, name.value, MaxResourceBytes); err != nil {
				return err
			}
		}
	}
	if q.Owner != "" {
		if err := ValidateOwner(q.Owner); err != nil {
			return err
		}
	}
	if q.Limit == 0 {
		q.Limit = DefaultListLimit
	}
	return validateLimit(q.Limit, MaxListLimit)
}

// Purger is a store that can delete the rows of ended leases. Expired rows harm nobody: they are taken over in place;
// purging keeps the table from growing with resources that are never asked for again.
type Purger interface {
	// Purge deletes at most limit expired rows and returns how many. A row that is being taken over or renewed
	// meanwhile stays. Errors: [ErrInvalid]; [ErrBusy].
	Purge(ctx context.Context, limit int) (int, error)
}

// ForceReleaser is a store that lets an operator end somebody else's lease.
type ForceReleaser interface {
	// ForceRelease ends the live grant that has this token, the one the operator saw, and returns what it ended.
	//
	// Errors: [ErrNotFound] when the resource is free or expired; [*LostError] with [ErrSuperseded], its Grant without an
	// owner, when another grant holds it by now; [ErrGuarded]; [ErrInvalid]; [ErrBusy].
	ForceRelease(ctx context.Context, resource string, token int64) (Lock, error)
}
