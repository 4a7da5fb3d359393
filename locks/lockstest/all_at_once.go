package lockstest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rowlease/rowlease/locks"
)

// allAtOnce lets two acquires of overlapping resources, in opposite orders, run beside a reader.
func allAtOnce(c *check) {
	c.multi(c.a)
	const size, rounds = 6, 8
	lister, ok := c.stores[3].(locks.Lister)
	if !ok {
		c.Logf("not tested: that nobody sees a part (%T is no locks.Lister)", c.stores[3])
	}
	for round := range rounds {
		prefix := fmt.Sprintf("order:%d:", round)
		var up, down []string
		for i := range size {
			up = append(up, fmt.Sprintf("%s%02d", prefix, i))
			down = append(down, fmt.Sprintf("%s%02d", prefix, size+size/2-1-i))
		}
		sets := [][]locks.Request{c.requests("worker-0", up...), c.requests("worker-1", down...)}
		ctx, cancel := context.WithTimeout(c.Context(), c.patience) // what would wait for ever is told here
		over := make(chan struct{})
		var reading sync.WaitGroup
		if ok {
			reading.Go(func() { c.wantNoPart(lister, prefix, size, over) })
		}
		answers := c.atOnce(len(sets), func(i int, store locks.Store) (lock locks.Lock, err error) {
			granted, err := store.(locks.MultiAcquirer).AcquireAll(ctx, sets[i])
			if err == nil {
				lock = granted[0]
			}
			return lock, err
		})
		close(over)
		reading.Wait()
		cancel()
		won := 0
		for i, a := range answers {
			switch {
			case a.err == nil:
				won++
				for _, request := range sets[i] {
					if got := c.get(c.b, request.Resource); got.Owner != request.Owner {
						c.Errorf("%q is held by %q, want %q, which was granted all", request.Resource, got.Owner, request.Owner)
					}
				}
			case !errors.Is(a.err, locks.ErrHeld) && (!c.h.OneWriter || !errors.Is(a.err, locks.ErrBusy)):
				c.Errorf("err = %v, want a grant, or ErrHeld", a.err)
			}
		}
		if won > 1 {
			c.Error("both of two acquires that overlap were granted")
		}
		if c.h.Rows != nil && c.h.Rows(c.TB, c.b)%size != 0 {
			c.Errorf("%d rows, of grants of %d each", c.h.Rows(c.TB, c.b), size)
		}
	}
}

// wantNoPart lists the leases until over is closed: there are none of an owner or all.
func (c *check) wantNoPart(lister locks.Lister, prefix string, size int, over <-chan struct{}) {
	for {
		page, err := lister.List(c.Context(), locks.ListQuery{Prefix: prefix})
		if err != nil {
			c.Errorf("List: %v", err)
			return
		}
		seen := map[string]int{}
		for _, lock := range page.Locks {
			seen[lock.Owner]++
		}
		for owner, n := range seen {
			if n != size {
				c.Errorf("%d of %d leases of %s are seen", n, size, owner)
				return
			}
		}
		select {
		case <-over:
			return
		default:
		}
	}
}
