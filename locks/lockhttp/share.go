package lockhttp

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// slotsFrom reads how the request wants to hold the resource, as [locks.Request].Slots has it.
func (a *API) slotsFrom(body map[string]member) (int, error) {
	number, counted := body["slots"]
	shared, field := body["shared"].truth, "slots"
	if shared {
		field = "shared"
	}
	slots := 0
	switch {
	case shared && counted:
		return 0, &locks.InvalidError{Field: "slots", Reason: "must not be given together with shared"}
	case shared:
		slots = locks.Shared
	case counted:
		n, err := integerIn("slots", number.text, 1, locks.MaxSlots)
		if err != nil {
			return 0, err
		}
		slots = int(n)
	}
	if _, able := a.store.(locks.Sharer); slots != 0 && !able {
		return 0, &locks.InvalidError{Field: field, Reason: "must not be given: the store has no shared leases"}
	}
	return slots, nil
}

// sharing is [locks.Lock].Slots as answers have it: "shared":true, or slots, or none of the two.
func sharing(slots int) (shared bool, counted int) {
	return slots == locks.Shared, max(0, slots)
}

// slotsDetail says how the resource is held and what was asked. Only its own owner is refused like that where one of the two
// is exclusive; everybody else is told "held".
func slotsDetail(err *locks.SlotsError) string {
	text := fmt.Sprintf("The resource is held %s, and was asked for %s.", howHeld(err.Held), howHeld(err.Asked))
	if err.Held == 0 || err.Asked == 0 {
		text += " The owner of the request holds it itself: release it first."
	}
	return text
}

func howHeld(slots int) string {
	switch slots {
	case 0:
		return "exclusively"
	case locks.Shared:
		return "shared"
	}
	return fmt.Sprintf("in %d slots", slots)
}

// inTheWay returns the lease that ends the request's wait when it ends: for one of n slots, the share that is the first to.
func (a *API) inTheWay(ctx context.Context, request locks.Request) (locks.Lock, error) {
	lock, err := a.store.Get(ctx, request.Resource)
	sharer, able := a.store.(locks.Sharer)
	if err != nil || !able || request.Slots <= 0 || lock.Slots <= 0 {
		return lock, err
	}
	shares, err := sharer.Holders(ctx, request.Resource, locks.MaxListHolders)
	if err != nil || len(shares) == 0 {
		return lock, err
	}
	return slices.MinFunc(shares, func(a, b locks.Lock) int { return cmp.Compare(a.Remaining, b.Remaining) }), nil
}
