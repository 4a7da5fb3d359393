package bunstore_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// openBesides opens another pool on the file, without a busy_timeout, so that only the store's limit is waited for.
func openBesides(tb testing.TB, file, journal string) *bun.DB {
	tb.Helper()
	sqldb, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode("+journal+")")
	if err != nil {
		tb.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	tb.Cleanup(func() { db.Close() })
	return db
}

// writer is a connection that has the file's write lock until it is told to commit.
func writer(tb testing.TB, db *bun.DB) (commit func()) {
	tb.Helper()
	conn, err := db.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(tb.Context(), "BEGIN IMMEDIATE"); err != nil {
		tb.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(tb.Context(), "COMMIT"); err != nil {
			tb.Errorf("COMMIT: %v", err)
		}
	}
}

func TestATryOnAHeldResourceDoesNotWaitForTheWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "WAL")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db, bunstore.WithBusyLimit(time.Hour), bunstore.WithCallLimit(time.Hour))
	held := acquire(t, store, request("job:42", "w1"))
	commit := writer(t, openBesides(t, file, "WAL"))
	defer commit()

	_, err := store.Acquire(t.Context(), request("job:42", "w2"))
	var refused *locks.HeldError
	if !errors.As(err, &refused) || refused.Holder == nil || refused.Holder.Token != held.Token {
		t.Errorf("Acquire by another = %v, want held with the holder", err)
	}
	if again := acquire(t, store, request("job:42", "w1")); again.Token != held.Token {
		t.Errorf("the same attempt got token %d, want its own %d", again.Token, held.Token)
	}
}

func TestAWriteThatFindsTheFileBusySaysSo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "WAL")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	commit := writer(t, openBesides(t, file, "WAL"))
	short := newStore(t, db, bunstore.WithBusyLimit(20*time.Millisecond), bunstore.WithCallLimit(time.Hour))
	long := newStore(t, db, bunstore.WithBusyLimit(time.Hour))
	_, err := short.Acquire(t.Context(), request("job:42", "w1"))
	if !errors.Is(err, locks.ErrBusy) || !errors.Is(err, locks.ErrRetryable) || errors.Is(err, locks.ErrHeld) {
		t.Errorf("at the limit: err = %v, want ErrBusy, which is retryable and not held", err)
	}
	// Near its context's end it is busy too, unless the context ends in the middle of a try: that leaves it open what the
	// try did.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = long.Acquire(ctx, request("job:42", "w1"))
	if !errors.Is(err, locks.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
		t.Errorf("at the context's end: err = %v, want ErrBusy or context.DeadlineExceeded", err)
	}
	commit()
	acquire(t, short, request("job:42", "w1"))
}

// The clock is read when the statement has the write lock, not when it began to wait for it.
func TestARenewalThatWaitedBeyondItsLeaseIsRefused(t *testing.T) {
	db := migrated(t)
	store := newStore(t, db)
	r := request("job:42", "w1")
	r.TTL = locks.MinTTL
	lock := acquire(t, store, r)
	commit := writer(t, db)
	result := make(chan error)
	go func() {
		_, err := store.Renew(t.Context(), lock.Grant(), time.Minute)
		result <- err
	}()
	for live := true; live; { // until the lease has ended by the database's clock
		_, err := store.Get(t.Context(), "job:42")
		live = err == nil
	}
	commit()
	if err := <-result; !errors.Is(err, locks.ErrExpired) {
		t.Errorf("Renew = %v, want ErrExpired", err)
	}
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("Get = %v, want the lease ended", err)
	}
}

// Without WAL a statement can have its row and still fail at its commit, which waits for readers.
func TestAGrantWhoseCommitFailsIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "DELETE")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	reader, err := openBesides(t, file, "DELETE").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, statement := range []string{"BEGIN", "SELECT count(*) FROM distributed_locks"} {
		if _, err := reader.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	store := newStore(t, db, bunstore.WithBusyLimit(20*time.Millisecond))
	if lock, err := store.Acquire(t.Context(), request("job:42", "w1")); !errors.Is(err, locks.ErrBusy) {
		t.Errorf("Acquire = %+v, %v; want ErrBusy", lock, err)
	}
	if _, err := reader.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, locks.ErrNotFound) {
		t.Errorf("Get = %v, want no lease", err)
	}
	acquire(t, store, request("job:42", "w2"))
}
