package lockstest

import (
	"github.com/rowlease/rowlease/locks"
)

// state is what became of a resource before a late renew or release arrives.
type state struct {
	name string
	// make returns the grant that the late call names, and the live lease that it must leave alone: nil where there
	// is none.
	make func(c *check) (late locks.Grant, live *locks.Lock)
	// reason is what the late call is told.
	reason error
	// rows is how many rows there are before and after; -1 where a release may delete the ended one.
	rows int
}

// latePromises cross every state with renew and release.
func latePromises() []promise {
	var promises []promise
	for _, s := range lateStates() {
		promises = append(promises,
			promise{name: "renew " + s.name, test: func(c *check) {
				late, live := s.make(c)
				for _, store := range []locks.Store{c.b, c.a} { // twice: the first must not have changed the second's answer
					lock, err := store.Renew(c.Context(), late, ttl)
					c.wantLost(err, late, s.reason)
					c.wantSame("the record beside the error", lock, locks.Lock{})
				}
				c.wantAfterLate(late.Resource, live)
				c.wantRows(max(s.rows, 0) + s.endedRow())
			}},
			promise{name: "release " + s.name, test: func(c *check) {
				late, live := s.make(c)
				c.wantLost(c.b.Release(c.Context(), late), late, s.reason)
				if s.rows >= 0 {
					c.wantLost(c.a.Release(c.Context(), late), late, s.reason)
					c.wantRows(s.rows)
				}
				c.wantAfterLate(late.Resource, live)
				if live == nil {
					c.acquire(c.a, late.Resource, "worker-9")
				}
			}},
		)
	}
	return promises
}

func (s state) endedRow() int {
	if s.rows < 0 {
		return 1
	}
	return 0
}

// wantAfterLate says that a late call harmed nobody and gave nobody a lease.
func (c *check) wantAfterLate(resource string, live *locks.Lock) {
	c.Helper()
	if live == nil {
		c.wantFree(resource)
		return
	}
	c.wantStored(*live)
	c.renew(c.a, live.Grant(), ttl)
}

func lateStates() []state {
	anyToken := func(l locks.Lock) locks.Grant {
		return locks.Grant{Resource: l.Resource, Owner: l.Owner, Token: locks.AnyToken}
	}
	expired := func(c *check) locks.Lock {
		lock := c.acquire(c.a, resource, "worker-1")
		c.expire(resource)
		return lock
	}
	takenOver := func(c *check) (first, second locks.Lock) {
		first = expired(c)
		return first, c.acquire(c.b, resource, "worker-2")
	}
	superseded := func(c *check) (first, second locks.Lock) {
		first = c.acquire(c.a, resource, "worker-1")
		return first, c.acquire(c.b, resource, "worker-1")
	}
	return []state{
		{"of a resource nobody ever held", func(*check) (locks.Grant, *locks.Lock) {
			return locks.Grant{Resource: resource, Owner: "worker-1", Token: 1}, nil
		}, locks.ErrNotHeld, 0},
		{"by any token of a resource nobody ever held", func(*check) (locks.Grant, *locks.Lock) {
			return locks.Grant{Resource: resource, Owner: "worker-1", Token: locks.AnyToken}, nil
		}, locks.ErrNotHeld, 0},
		{"with the largest token of a resource nobody ever held", func(*check) (locks.Grant, *locks.Lock) {
			return locks.Grant{Resource: resource, Owner: "worker-1", Token: 1<<53 - 1}, nil
		}, locks.ErrNotHeld, 0},
		{"after its end", func(c *check) (locks.Grant, *locks.Lock) {
			return expired(c).Grant(), nil
		}, locks.ErrExpired, -1},
		{"by any token after its end", func(c *check) (locks.Grant, *locks.Lock) {
			return anyToken(expired(c)), nil
		}, locks.ErrExpired, -1},
		{"after a takeover", func(c *check) (locks.Grant, *locks.Lock) {
			first, second := takenOver(c)
			return first.Grant(), &second
		}, locks.ErrNotOwner, 1},
		{"by any token after a takeover", func(c *check) (locks.Grant, *locks.Lock) {
			first, second := takenOver(c)
			return anyToken(first), &second
		}, locks.ErrNotOwner, 1},
		{"with the new holder's token after a takeover", func(c *check) (locks.Grant, *locks.Lock) {
			first, second := takenOver(c)
			return locks.Grant{Resource: resource, Owner: first.Owner, Token: second.Token}, &second
		}, locks.ErrNotOwner, 1},
		{"after the end of the lease that took it over", func(c *check) (locks.Grant, *locks.Lock) {
			first, _ := takenOver(c)
			c.expire(resource)
			return first.Grant(), nil
		}, locks.ErrNotHeld, -1},
		{"after a new grant of its owner", func(c *check) (locks.Grant, *locks.Lock) {
			first, second := superseded(c)
			return first.Grant(), &second
		}, locks.ErrSuperseded, 1},
		{"after its end and a new grant of its owner", func(c *check) (locks.Grant, *locks.Lock) {
			first := expired(c)
			second := c.acquire(c.b, resource, "worker-1")
			return first.Grant(), &second
		}, locks.ErrSuperseded, 1},
		{"after the end of a new grant of its owner", func(c *check) (locks.Grant, *locks.Lock) {
			first, _ := superseded(c)
			c.expire(resource)
			return first.Grant(), nil
		}, locks.ErrNotHeld, -1},
		{"after its release and a new grant of its owner", func(c *check) (locks.Grant, *locks.Lock) {
			first := c.acquire(c.a, resource, "worker-1")
			c.release(c.a, first.Grant())
			second := c.acquire(c.b, resource, "worker-1")
			return first.Grant(), &second
		}, locks.ErrSuperseded, 1},
		{"with a token that is not given yet", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			return locks.Grant{Resource: resource, Owner: "worker-1", Token: lock.Token + 1}, &lock
		}, locks.ErrSuperseded, 1},
		{"by another owner", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			return locks.Grant{Resource: resource, Owner: "worker-2", Token: lock.Token}, &lock
		}, locks.ErrNotOwner, 1},
		{"after its release", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			c.release(c.a, lock.Grant())
			return lock.Grant(), nil
		}, locks.ErrNotHeld, 0},
		{"by any token after its release", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			c.release(c.a, lock.Grant())
			return anyToken(lock), nil
		}, locks.ErrNotHeld, 0},
		{"after its row was deleted by hand", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			c.deleteRow(resource)
			return lock.Grant(), nil
		}, locks.ErrNotHeld, 0},
		{"after its row was deleted and another took the resource", func(c *check) (locks.Grant, *locks.Lock) {
			first := c.acquire(c.a, resource, "worker-1")
			c.deleteRow(resource)
			second := c.acquire(c.b, resource, "worker-2")
			return first.Grant(), &second
		}, locks.ErrNotOwner, 1},
		{"after its ended row was purged", func(c *check) (locks.Grant, *locks.Lock) {
			lock := expired(c)
			c.purge(c.b, 10, 1)
			return lock.Grant(), nil
		}, locks.ErrNotHeld, 0},
		{"after a forced release", func(c *check) (locks.Grant, *locks.Lock) {
			lock := c.acquire(c.a, resource, "worker-1")
			c.forceRelease(c.b, lock)
			return lock.Grant(), nil
		}, locks.ErrNotHeld, 0},
	}
}
