package lockhttp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks"
)

// The table has one row for each pair, and an answer for every reason whatever the action.
func TestStatusTableIsWhole(t *testing.T) {
	seen := map[string]bool{}
	rest := map[reason]bool{}
	statuses := map[string]string{}
	for _, row := range statusTable {
		key := fmt.Sprint(row.reason, row.action)
		if seen[key] {
			t.Errorf("two rows for reason %d during %q", row.reason, row.action)
		}
		seen[key] = true
		if row.action == always {
			rest[row.reason] = true
		}
		if row.status < 400 || row.status > 599 || row.title == "" || !strings.HasPrefix(row.urn, TypePrefix) {
			t.Errorf("row is not whole: %+v", row)
		}
		if row.status == 503 && row.seconds < 1 {
			t.Errorf("503 without Retry-After: %+v", row)
		}
		if title, ok := statuses[row.urn]; ok && title != row.title {
			t.Errorf("%s has two titles, %q and %q", row.urn, title, row.title)
		}
		statuses[row.urn] = row.title
	}
	for r := unavailable; r <= wrongMethod; r++ {
		if !rest[r] && r != tokenMismatch && r != tokenRequired {
			t.Errorf("reason %d has no row for every other action", r)
		}
	}
}

func TestStatusTable(t *testing.T) {
	for _, row := range []struct {
		err    error
		action Action
		status int
		urn    string
	}{
		{locks.Held("r", nil), ActionAcquire, 423, TypeHeld},
		{locks.ErrSlots, ActionAcquire, 409, TypeOtherSlots},
		{&locks.SlotsError{Resource: "r", Held: 5, Asked: locks.Shared}, ActionAcquire, 409, TypeOtherSlots},
		{fmt.Errorf("%w: %w", &locks.SlotsError{Resource: "r"}, locks.Held("r", nil)), ActionAcquire, 409, TypeOtherSlots},
		{locks.ErrNotHeld, ActionRenew, 409, TypeNotHeld},
		{locks.ErrExpired, ActionRenew, 409, TypeExpired},
		{locks.ErrNotOwner, ActionRenew, 409, TypeNotOwner},
		{locks.ErrSuperseded, ActionRenew, 409, TypeSuperseded},
		{locks.ErrLost, ActionRenew, 409, TypeNotHeld},
		{locks.ErrNotHeld, ActionRelease, 404, TypeNotHeld},
		{locks.ErrExpired, ActionRelease, 404, TypeExpired},
		{locks.ErrNotOwner, ActionRelease, 403, TypeNotOwner},
		{locks.ErrSuperseded, ActionRelease, 403, TypeSuperseded},
		{locks.ErrGuarded, ActionRelease, 409, TypeGuarded},
		{locks.ErrNotFound, ActionGet, 404, TypeNotHeld},
		{locks.ErrNotFound, ActionInspect, 404, TypeNotHeld},
		{locks.ErrNotFound, ActionForceRelease, 404, TypeNotHeld},
		{locks.ErrExpired, ActionForceRelease, 404, TypeExpired},
		{locks.ErrNotHeld, ActionForceRelease, 404, TypeNotHeld},
		{locks.ErrNotOwner, ActionForceRelease, 412, TypePreconditionFailed},
		{locks.ErrSuperseded, ActionForceRelease, 412, TypePreconditionFailed},
		{locks.ErrGuarded, ActionForceRelease, 409, TypeGuarded},
		{&locks.InvalidError{Field: "owner", Reason: "x"}, ActionAcquire, 422, TypeInvalid},
		{locks.ErrBusy, ActionAcquire, 503, TypeBusy},
		{locks.ErrSerialization, ActionRelease, 503, TypeBusy},
		{locks.ErrStaleSnapshot, ActionRenew, 503, TypeBusy},
		{locks.ErrClosed, ActionAcquire, 503, TypeUnavailable},
		{fmt.Errorf("anything else"), ActionAcquire, 503, TypeUnavailable},
	} {
		wrapped := fmt.Errorf("wrapped: %w", row.err)
		p := ProblemOf(wrapped, row.action)
		if p.Status != row.status || p.Type != row.urn {
			t.Errorf("%v during %s: %d %s, want %d %s", row.err, row.action, p.Status, p.Type, row.status, row.urn)
		}
		if strings.Contains(p.Title+p.Detail, "wrapped") {
			t.Errorf("the problem has the error's text: %+v", p)
		}
	}
}
