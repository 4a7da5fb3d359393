package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// ticket is one who waits. Its times have the monotonic reading.
type ticket struct {
	waits
	number          int64
	since, expireAt time.Time
}

// waits is the identity of a ticket.
type waits struct{ resource, owner, attempt string }

func waitsFor(request locks.Request) waits {
	return waits{request.Resource, request.Owner, request.Attempt}
}

func (t *ticket) live(now time.Time) bool { return now.Before(t.expireAt) }

func (t *ticket) waiter() locks.Waiter {
	return locks.Waiter{Resource: t.resource, Owner: t.owner, Number: t.number, Since: t.since.UTC(), ExpiresAt: t.expireAt.UTC()}
}

// tickets are all who wait. The first of a line is found, and taken out, in a time that does not grow with the line. The
// store's mutex protects them.
type tickets struct {
	lines map[string][]*ticket // by resource, in the order of their numbers; none is empty
	of    map[waits]*ticket
	last  int64
}

// draw puts a ticket at the end of its line.
func (ts *tickets) draw(w waits, now time.Time, ttl time.Duration) *ticket {
	if ts.lines == nil {
		ts.lines, ts.of = make(map[string][]*ticket), make(map[waits]*ticket)
	}
	ts.last++
	t := &ticket{waits: w, number: ts.last, since: now, expireAt: now.Add(ttl)}
	ts.lines[w.resource] = append(ts.lines[w.resource], t)
	ts.of[w] = t
	return t
}

// find returns the live ticket of the number, nil for none.
func (ts *tickets) find(resource string, number int64, now time.Time) *ticket {
	line := ts.lines[resource]
	if at, found := place(line, number); found && line[at].live(now) {
		return line[at]
	}
	return nil
}

func place(line []*ticket, number int64) (at int, found bool) {
	return slices.BinarySearchFunc(line, number, func(t *ticket, number int64) int { return cmp.Compare(t.number, number) })
}

// first returns the ticket whose turn it is, nil for none, and forgets the ended ones before it.
func (ts *tickets) first(resource string, now time.Time) *ticket {
	for len(ts.lines[resource]) > 0 {
		t := ts.lines[resource][0]
		if t.live(now) {
			return t
		}
		ts.remove(t.waits)
	}
	return nil
}

// live returns a line without the tickets that have ended, which it forgets.
func (ts *tickets) live(resource string, now time.Time) []*ticket {
	ended := func(t *ticket) bool {
		if t.live(now) {
			return false
		}
		delete(ts.of, t.waits)
		return true
	}
	if line := slices.DeleteFunc(ts.lines[resource], ended); len(line) > 0 {
		ts.lines[resource] = line
		return line
	}
	delete(ts.lines, resource)
	return nil
}

// sweep forgets all tickets that have ended.
func (ts *tickets) sweep(now time.Time) {
	for resource := range ts.lines {
		ts.live(resource, now)
	}
}

// remove takes a ticket out, if it is there.
func (ts *tickets) remove(w waits) {
	t := ts.of[w]
	if t == nil {
		return
	}
	delete(ts.of, w)
	line := ts.lines[w.resource]
	switch at, _ := place(line, t.number); {
	case len(line) == 1:
		delete(ts.lines, w.resource)
	case at == 0:
		line[0] = nil
		ts.lines[w.resource] = line[1:]
	default:
		ts.lines[w.resource] = slices.Delete(line, at, at+1)
	}
}
