package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks"
)

// reminders are sent once for each invoice, by any goroutine of any process. The goroutines of one process wait for each
// other here and not at the database; and since every lease can end early, what was done is written down.
type reminders struct {
	db     *bun.DB
	locker *locks.Locker

	mu     sync.Mutex // in front of the lease; one for each invoice would be finer
	done   map[int64]bool
	leases int
}

func (r *reminders) remind(ctx context.Context, id int64, send func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[id] {
		return nil
	}
	err := r.locker.Do(ctx, fmt.Sprintf("remind:%d", id), func(ctx context.Context, _ *locks.Lease) error {
		r.leases++
		bill := invoice{ID: id}
		if err := r.db.NewSelect().Model(&bill).WherePK().Scan(ctx); err != nil || bill.State == "reminded" {
			return err // another process has done it
		}
		send()
		bill.State = "reminded"
		_, err := r.db.NewUpdate().Model(&bill).Column("state").WherePK().Exec(ctx)
		return err
	})
	r.done[id] = err == nil
	return err
}

func localStory(ctx context.Context, a *app) error {
	var sent int
	var wg sync.WaitGroup
	r := &reminders{db: a.db, locker: a.locker, done: map[int64]bool{}}
	failed := make(chan error, 8)
	for range cap(failed) {
		wg.Go(func() { failed <- r.remind(ctx, 5, func() { sent++ }) })
	}
	wg.Wait()
	for range cap(failed) {
		if err := <-failed; err != nil {
			return err
		}
	}
	a.say("%d goroutines, %d lease, %d reminder", cap(failed), r.leases, sent)
	return nil
}
