package advisory_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

// db is the application's own, on PostgreSQL.
var db *bun.DB

// Two transfers that touch one account wait for each other; the lock ends with the transaction.
func ExampleLockTx() {
	ctx := context.Background()
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		err := advisory.LockTx(ctx, tx, "account:4711", advisory.WithLimit(2*time.Second))
		if errors.Is(err, locks.ErrHeld) {
			return errors.New("the account is busy, try again later")
		}
		if err != nil {
			return err
		}
		_, err = tx.NewRaw("UPDATE accounts SET balance = balance - 10 WHERE id = 4711").Exec(ctx)
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

// Readers share the price list, and skip their work while somebody writes it.
func ExampleTryLockTx() {
	ctx := context.Background()
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		err := advisory.TryLockTx(ctx, tx, "price list", advisory.Shared())
		if errors.Is(err, locks.ErrHeld) {
			return nil // the transaction goes on
		}
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleNew() {
	ctx := context.Background()
	locker, err := advisory.New(db, advisory.WithPingInterval(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if err := locker.Check(ctx); errors.Is(err, advisory.ErrPooler) {
		log.Fatal("give the locker a DSN that goes to PostgreSQL itself")
	}
}

// One process sends the invoices; its work stops when the connection, and so the lock, is lost.
func ExampleLocker_TryLock() {
	ctx := context.Background()
	locker, err := advisory.New(db)
	if err != nil {
		log.Fatal(err)
	}
	session, err := locker.TryLock(ctx, "send invoices")
	if errors.Is(err, locks.ErrHeld) {
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer session.Unlock(ctx)
	sendInvoices(session.Context())
}

func ExampleLocker_Lock() {
	ctx := context.Background()
	locker, err := advisory.New(db)
	if err != nil {
		log.Fatal(err)
	}
	session, err := locker.Lock(ctx, "send invoices", advisory.WithLimit(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	sendInvoices(session.Context())
	if err := session.Unlock(ctx); errors.Is(err, locks.ErrLost) {
		log.Print("somebody else may have sent some of them too: ", err)
	}
}

func sendInvoices(context.Context) {}
