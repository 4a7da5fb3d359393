package bunstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

// requests are one of the owner for each resource.
func requests(owner string, resources ...string) []locks.Request {
	all := make([]locks.Request, len(resources))
	for i, resource := range resources {
		all[i] = request(resource, owner)
	}
	return all
}

// wantHeld fails unless err is the answer "held", of the resource and, where token is not 0, with its holder.
func wantHeld(tb testing.TB, err error, resource string, token int64) {
	tb.Helper()
	var held *locks.HeldError
	if !errors.As(err, &held) || held.Resource != resource || token != 0 && (held.Holder == nil || held.Holder.Token != token) {
		tb.Errorf("err = %v, want held for %q by token %d", err, resource, token)
	}
}

func countRows(tb testing.TB, db *bun.DB) (n int) {
	tb.Helper()
	if err := db.QueryRowContext(tb.Context(), "SELECT count(*) FROM distributed_locks").Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestARefusedAcquireAllDoesNotWaitForTheWriter(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "WAL")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db, bunstore.WithBusyLimit(time.Hour), bunstore.WithCallLimit(time.Hour))
	mine, err := store.AcquireAll(t.Context(), requests("w1", "job:3", "job:1"))
	if err != nil {
		t.Fatal(err)
	}
	commit := writer(t, openBesides(t, file, "WAL"))
	defer commit()

	_, err = store.AcquireAll(t.Context(), requests("w2", "job:4", "job:3", "job:2", "job:1"))
	wantHeld(t, err, "job:1", mine[1].Token)
	again, err := store.AcquireAll(t.Context(), requests("w1", "job:1", "job:3"))
	if err != nil || again[0].Token != mine[1].Token || again[1].Token != mine[0].Token {
		t.Errorf("the retry got %+v, %v; want the grants it has", again, err)
	}
}

// What was free when it was read first may be held by the time the file's write lock is there.
func TestAcquireAllLooksAgainWithTheWriteLock(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	if err := bunstore.Migrate(t.Context(), openSQLite(t, file)); err != nil {
		t.Fatal(err)
	}
	db, other := openSQLite(t, file), newStore(t, openSQLite(t, file))
	var theirs locks.Lock
	store := newStore(t, db, bunstore.WithQueryHook(&afterFirst{do: func() { theirs = acquire(t, other, request("b", "w2")) }}))
	_, err := store.AcquireAll(t.Context(), requests("w1", "c", "b", "a"))
	wantHeld(t, err, "b", theirs.Token)
	if n := countRows(t, db); n != 1 {
		t.Errorf("%d rows after the refusal, want the other's alone", n)
	}
	writer(t, openBesides(t, file, "WAL"))() // nobody has kept the file's write lock
}

// afterFirst does something after the store's first statement, or panics after a later one.
type afterFirst struct {
	do      func()
	seen    int
	panicAt int
}

func (h *afterFirst) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (h *afterFirst) AfterQuery(context.Context, *bun.QueryEvent) {
	h.seen++
	if h.seen == 1 && h.do != nil {
		h.do()
	}
	if h.seen == h.panicAt {
		panic("a hook's own fault")
	}
}

// A hook that panics within the transaction leaves neither a part of it nor the file's write lock behind.
func TestAcquireAllWhoseHookPanics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openSQLite(t, file)
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db, bunstore.WithQueryHook(&afterFirst{panicAt: 3})) // read, read again, the first upsert
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = store.AcquireAll(t.Context(), requests("w1", "a", "b"))
	}()
	if n := countRows(t, db); n != 0 {
		t.Errorf("%d rows after the panic, want none", n)
	}
	writer(t, openBesides(t, file, "WAL"))()
}

func TestAcquireAllFindsTheFileBusy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "leases.db")
	db := openBesides(t, file, "WAL")
	if err := bunstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, db, bunstore.WithBusyLimit(20*time.Millisecond), bunstore.WithCallLimit(time.Hour))
	commit := writer(t, openBesides(t, file, "WAL"))
	_, err := store.AcquireAll(t.Context(), requests("w1", "a", "b"))
	if !errors.Is(err, locks.ErrBusy) || errors.Is(err, locks.ErrHeld) {
		t.Errorf("err = %v, want ErrBusy, which is not held", err)
	}
	commit()
	if _, err := store.AcquireAll(t.Context(), requests("w1", "a", "b")); err != nil {
		t.Error(err)
	}
}

// Without WAL the commit waits for readers, and a transaction whose commit fails has granted nothing.
func TestAcquireAllWhoseCommitFails(t *testing.T) {
	t.Parallel()
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
	store := newStore(t, db, bunstore.WithBusyLimit(20*time.Millisecond), bunstore.WithCallLimit(time.Hour))
	granted, err := store.AcquireAll(t.Context(), requests("w1", "a", "b"))
	if !errors.Is(err, locks.ErrBusy) || granted != nil {
		t.Errorf("AcquireAll = %+v, %v; want ErrBusy", granted, err)
	}
	if _, err := reader.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, db); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	if _, err := store.AcquireAll(t.Context(), requests("w2", "a", "b")); err != nil {
		t.Error(err)
	}
}

// A fault in the middle undoes what came before it, and is no answer.
func TestAcquireAllThatFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	execSQL(t, db, `CREATE TRIGGER broken BEFORE INSERT ON distributed_locks WHEN new.resource = 'c'
		BEGIN SELECT RAISE(ABORT, 'no c here'); END`)
	store := newStore(t, db)
	granted, err := store.AcquireAll(t.Context(), requests("w1", "c", "b", "a"))
	if err == nil || granted != nil || errors.Is(err, locks.ErrHeld) || errors.Is(err, locks.ErrRetryable) {
		t.Errorf("AcquireAll = %+v, %v; want the fault alone", granted, err)
	}
	if n := countRows(t, db); n != 0 {
		t.Errorf("%d rows after the fault, want none", n)
	}
	if _, err := store.AcquireAll(t.Context(), requests("w2", "b", "a")); err != nil {
		t.Error(err)
	}
}

// The names and metadata at their limits, a hundred at once, each kept byte for byte.
func TestAcquireAllKeepsEveryByte(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := newStore(t, db)
	all := strangeRequests()
	granted, err := store.AcquireAll(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range all {
		got := granted[i]
		if got.Resource != want.Resource || got.Owner != want.Owner || string(got.Metadata) != string(want.Metadata) ||
			got.ExpiresAt.Sub(got.AcquiredAt) != want.TTL {
			t.Errorf("request %d: got %+v\nwant %+v", i, got, want)
		}
	}
	if n := countRows(t, db); n != len(all) {
		t.Errorf("%d rows, want %d", n, len(all))
	}
	for _, bad := range []string{"a\x00b", "a\nb", "\xff", strings.Repeat("x", 513)} {
		_, err := store.AcquireAll(t.Context(), requests("w1", "fine", bad))
		if !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("%.10q: err = %v, want ErrInvalid", bad, err)
		}
	}
	if n := countRows(t, db); n != len(all) {
		t.Errorf("%d rows after the refusals, want %d", n, len(all))
	}
}

// strangeRequests are a hundred requests that differ in everything, in no order.
func strangeRequests() []locks.Request {
	names := []string{
		`it's`, `"quoted"`, `back\slash`, `\u0041`, `$1`, `$tag$`, `?`, `?0`, `:name`, `%s`, "\U0001F512", "\u00e9", "e\u0301", "E\u0301", "a ", " a", "A",
		`{resources}`, `'); DROP TABLE distributed_locks; --`, `<b>&amp;`, "\u2028", "\ufeff", "\ufffd", "\U0010ffff",
	}
	for i := len(names); i < locks.MaxAcquireAll; i++ {
		names = append(names, fmt.Sprintf("%03d%s", i, strings.Repeat("\u00e9", 254))+"x") // 512 bytes
	}
	all := make([]locks.Request, len(names))
	for i, name := range names {
		all[i] = locks.Request{
			Resource: name, Owner: fmt.Sprintf("w%d %.20s", i, name), Attempt: fmt.Sprintf("%.20s %d", name, i),
			TTL: time.Minute + time.Duration(i)*time.Millisecond,
		}
		if i%3 != 0 {
			text, _ := json.Marshal(name)
			all[i].Metadata = json.RawMessage(" {\"of\" :\t" + string(text) + `, "n":1.50, "n":1e2, "s":"\u00e9\u0000\ud83d\udd12\\"}` + "\n")
		}
	}
	slices.Reverse(all)
	return all
}

// Several resources of one piece of work, such as the two accounts of a transfer, are held together or not at all.
func ExampleStore_AcquireAll() {
	ctx := context.Background()
	db, remove := exampleDB()
	defer remove()
	if err := bunstore.Migrate(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	store, err := bunstore.New(db)
	if err != nil {
		fmt.Println(err)
		return
	}
	transfer := func(owner string, accounts ...string) []locks.Request {
		var requests []locks.Request
		for _, account := range accounts {
			requests = append(requests, locks.Request{Resource: account, Owner: owner, Attempt: "1", TTL: time.Minute})
		}
		return requests
	}
	granted, err := store.AcquireAll(ctx, transfer("teller-1", "account:7", "account:3"))
	fmt.Println(len(granted), "granted,", err)

	_, err = store.AcquireAll(ctx, transfer("teller-2", "account:1", "account:3"))
	var held *locks.HeldError
	fmt.Println("held:", errors.As(err, &held), held.Resource)
	_, err = store.Get(ctx, "account:1")
	fmt.Println("account:1 is free:", errors.Is(err, locks.ErrNotFound))
	// Output:
	// 2 granted, <nil>
	// held: true account:3
	// account:1 is free: true
}
