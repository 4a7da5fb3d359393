package lockstest

import (
	"errors"
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

func guardTwice(c *check) {
	c.needsManyWriters()
	lock := c.acquire(c.b, resource, "worker-1")
	first, second := c.begin(c.a), c.begin(c.b)
	c.guard(first, lock.Grant())
	c.guard(second, lock.Grant())
	c.rollback(first)
	c.wantExcluded(resource, &lock)
	c.wantUsable(second)
	c.commit(second)
	c.wantStored(lock)
	third := c.begin(c.a) // a guard that was there leaves nothing
	c.guard(third, lock.Grant())
	c.commit(third)
	c.release(c.b, lock.Grant())
	c.acquire(c.b, resource, "worker-2")
}

// guardRace lets a guard run beside somebody who ends the lease and somebody who takes the resource. Who passed a guard
// finds its own lease, and nobody is granted another, until the transaction ends.
func guardRace(c *check) {
	c.needsTransactions()
	passed, refused, rounds := 0, 0, 20
	if c.h.OneWriter { // where each refusal waits
		rounds = 6
	}
	for round := range rounds {
		name := fmt.Sprintf("invoice:%d", round)
		lock := c.acquire(c.a, name, "worker-1")
		tx := c.begin(c.a)
		taker := round / 2 % 2 // whoever is started last mostly runs first
		answers := c.atOnce(2, func(i int, _ locks.Store) (locks.Lock, error) {
			if i == taker {
				return c.endAndTake(c.stores[2], lock, round%2 == 0)
			}
			err := tx.Guard(c.Context(), lock.Grant())
			if err == nil {
				c.wantStored(lock)
				c.wantExcluded(name, &lock)
			}
			if err == nil || errors.Is(err, locks.ErrLost) {
				c.wantUsable(tx)
				return lock, errors.Join(err, tx.Commit(c.Context()))
			}
			return lock, errors.Join(err, tx.Rollback(c.Context()))
		})
		switch guarded, taken := answers[1-taker].err, answers[taker].err; {
		case guarded == nil:
			passed++
		case errors.Is(guarded, locks.ErrLost):
			refused++
			if taken != nil && !errors.Is(taken, locks.ErrHeld) && !errors.Is(taken, locks.ErrBusy) {
				c.Errorf("the guard was refused: %v, and the taker too: %v", guarded, taken)
			}
		case !errors.Is(guarded, locks.ErrRetryable):
			c.Errorf("Guard: %v, want it passed, or refused as lost", guarded)
		}
		if taken := answers[taker]; taken.err == nil {
			c.wantStored(taken.lock)
		}
	}
	c.Logf("%d guards passed, %d were refused", passed, refused)
}

// endAndTake ends the lease by force and takes the resource for another owner, or for its owner without ending it.
func (c *check) endAndTake(store locks.Store, lock locks.Lock, force bool) (locks.Lock, error) {
	owner := "worker-1"
	if forcer, ok := store.(locks.ForceReleaser); ok && force {
		if _, err := forcer.ForceRelease(c.Context(), lock.Resource, lock.Token); err != nil {
			return locks.Lock{}, err
		}
		owner = "worker-2"
	}
	return store.Acquire(c.Context(), locks.Request{Resource: lock.Resource, Owner: owner, Attempt: "take", TTL: ttl})
}
