package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// bank moves money in the way that loses updates: it reads both balances, and later writes what it has computed of them.
// Only the leases of both accounts, and their guards in the transaction that writes, stand between that and the damage.
type bank struct {
	config
	db     *bun.DB
	store  *bunstore.Store
	locker *locks.Locker

	lasts                 atomic.Int64 // how long leases last: the TTL, and longer where that is too short for the machine
	begun                 int
	done, refused, paused atomic.Int64
}

type transfer struct {
	from, to, amount int
	// wait is called between the reading and the writing of the first try; nil for no wait.
	wait func(context.Context) error
}

// make tries until the transfer is written. What was refused begins anew: with new leases, and new balances.
func (b *bank) make(ctx context.Context, t transfer) error {
	for {
		err := b.try(ctx, t)
		switch {
		case err == nil:
			b.done.Add(1)
			return nil
		case !errors.Is(err, locks.ErrLost) && !errors.Is(err, locks.ErrRetryable):
			return err
		}
		t.wait = nil
	}
}

func (b *bank) try(ctx context.Context, t transfer) error {
	accounts := []int{min(t.from, t.to), max(t.from, t.to)} // in one order everywhere, so that nobody waits in a circle
	leases := map[int]*locks.Lease{}
	ttl := time.Duration(b.lasts.Load())
	for _, account := range accounts {
		lease, err := b.locker.Acquire(ctx, fmt.Sprintf("account:%d", account), locks.WithTTL(ttl))
		if err != nil {
			return err
		}
		defer lease.Release(ctx) //nolint:errcheck // a lease that has ended needs none
		leases[account] = lease
	}
	if err := leases[accounts[0]].Err(); err != nil { // it has waited too long for the other
		return err
	}
	began := time.Now()
	balances, err := b.balances(ctx, accounts)
	if err != nil {
		return err
	}
	balances[t.from] -= t.amount
	balances[t.to] += t.amount
	if t.wait != nil {
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
	err = b.store.RunInTx(ctx, nil, func(ctx context.Context, tx *bunstore.Tx) error {
		if err := b.guardAll(ctx, tx, leases, accounts); err != nil {
			return err
		}
		for _, account := range accounts {
			amount := t.amount
			if account == t.from {
				amount = -amount
			}
			if err := b.write(ctx, tx, account, balances[account], amount, leases[account].Token()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && t.wait == nil && time.Since(began) > ttl/2 {
		b.lasts.CompareAndSwap(int64(ttl), int64(min(2*ttl, 30*time.Second))) // the machine is slow beside the TTL
	}
	return err
}

// guardAll guards by the grants, and not by [locks.Lease.GuardTx], which refuses by itself what is past its deadline here:
// the database is under test.
func (b *bank) guardAll(ctx context.Context, tx *bunstore.Tx, leases map[int]*locks.Lease, accounts []int) error {
	if !b.guard {
		return nil
	}
	for _, account := range accounts {
		err := tx.Guard(ctx, leases[account].Grant())
		if errors.Is(err, locks.ErrLost) {
			b.refused.Add(1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bank) balances(ctx context.Context, accounts []int) (map[int]int, error) {
	balances := map[int]int{}
	rows, err := b.db.QueryContext(ctx, "SELECT id, balance FROM accounts WHERE id IN (?)", bun.List(accounts))
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // read to the end
	for rows.Next() {
		var id, balance int
		if err := rows.Scan(&id, &balance); err != nil {
			return nil, err
		}
		balances[id] = balance
	}
	return balances, rows.Err()
}

// write sets the balance, and adds to the ledger who did. The account's writes are numbered under its row's lock, which
// is held to the commit: so their numbers are in the order of the commits.
func (b *bank) write(ctx context.Context, tx bun.IDB, account, balance, amount int, token int64) error {
	_, err := tx.ExecContext(ctx, `WITH written AS (
		UPDATE accounts SET balance = ?, writes = writes + 1 WHERE id = ? RETURNING id, writes
	) INSERT INTO ledger (account, number, token, process, amount) SELECT id, writes, ?, ?, ? FROM written`,
		balance, account, token, b.process, amount)
	return err
}

// untilTakenOver returns when another process has written to the account.
func (b *bank) untilTakenOver(ctx context.Context, account int) error {
	for {
		var taken bool
		err := b.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM ledger WHERE account = ? AND process <> ?)", account, b.process).Scan(&taken)
		if err != nil || taken {
			return err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
