package lockstest

import "github.com/rowlease/rowlease/locks"

// gone is a grant that is not current, and what a renew, release or guard is told of it.
type gone struct {
	grant  locks.Grant
	reason error
	live   *locks.Lock // what holds the resource instead
}

// goneGrants makes one of each kind, each of a resource of its own.
func (c *check) goneGrants() []gone {
	c.Helper()
	released := c.acquire(c.a, "released", "worker-1")
	c.release(c.b, released.Grant())
	ended := c.acquire(c.a, "ended", "worker-1")
	c.expire("ended")
	taken := c.acquire(c.a, "taken over", "worker-1")
	c.expire("taken over")
	taker := c.acquire(c.b, "taken over", "worker-2")
	superseded := c.acquire(c.a, "superseded", "worker-1")
	newer := c.acquire(c.b, "superseded", "worker-1")
	other := c.acquire(c.a, "another owner's", "worker-1")
	return []gone{
		{locks.Grant{Resource: "never held", Owner: "worker-1", Token: 1}, locks.ErrNotHeld, nil},
		{released.Grant(), locks.ErrNotHeld, nil},
		{ended.Grant(), locks.ErrExpired, nil},
		{taken.Grant(), locks.ErrNotOwner, &taker},
		{superseded.Grant(), locks.ErrSuperseded, &newer},
		{locks.Grant{Resource: other.Resource, Owner: "worker-2", Token: other.Token}, locks.ErrNotOwner, &other},
	}
}

// refusesGone says that a call in a transaction refuses each grant that is not current with its reason, changes
// nothing, and leaves the transaction usable and nothing behind.
func refusesGone(call func(c *check, tx Transaction, grant locks.Grant) error) func(*check) {
	return func(c *check) {
		c.needsTransactions()
		grants := c.goneGrants()
		tx := c.begin(c.a)
		for _, g := range grants {
			for range 2 { // the first must not have changed the second's answer
				c.wantLost(call(c, tx, g.grant), g.grant, g.reason)
				c.wantUsable(tx)
			}
		}
		nothingLeft := func() {
			c.Helper()
			for _, g := range grants {
				owner := "worker-3"
				if g.live != nil {
					c.wantStored(*g.live)
					owner = g.live.Owner
				} else {
					c.wantFree(g.grant.Resource)
				}
				c.acquire(c.b, g.grant.Resource, owner)
			}
		}
		if !c.h.OneWriter { // while the transaction is open
			nothingLeft()
		}
		own := c.acquireTx(tx, resource, "worker-1")
		c.commit(tx)
		c.wantStored(own)
		if c.h.OneWriter {
			nothingLeft()
		}
	}
}
