package advisory_test

import (
	"database/sql"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

func invalid(t *testing.T, what string, err error, field, text string) {
	t.Helper()
	var got *locks.InvalidError
	if !errors.As(err, &got) || got.Field != field || !strings.Contains(got.Reason, text) {
		t.Errorf("%s: %v, want an InvalidError of %q that says %q", what, err, field, text)
	}
}

func TestSQLiteIsRefused(t *testing.T) {
	t.Parallel()
	sqldb, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New())
	defer db.Close()
	_, err = advisory.New(db)
	invalid(t, "New", err, "dialect", "use a lease")

	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	invalid(t, "LockTx", advisory.LockTx(t.Context(), tx, "a"), "dialect", "use a lease")
	invalid(t, "TryLockTx", advisory.TryLockTx(t.Context(), tx, "a"), "dialect", "use a lease")
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	db, fake := newFake(t, always(true, 7, nil))
	for _, test := range []struct {
		db     *bun.DB
		option advisory.LockerOption
		field  string
	}{
		{nil, nil, "db"},
		{db, nil, "option"},
		{db, advisory.WithPingInterval(advisory.MinPingInterval - 1), "ping interval"},
		{db, advisory.WithPingInterval(math.MaxInt64), "ping interval"},
		{db, advisory.WithCallLimit(0), "call limit"},
		{db, advisory.WithCallLimit(math.MaxInt64), "call limit"},
	} {
		_, err := advisory.New(test.db, test.option)
		invalid(t, "New", err, test.field, "must")
	}
	locker, err := advisory.New(db, advisory.WithoutPoolerCheck())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	calls := map[string]func(name string, options ...advisory.Option) error{
		"TryLock":   func(n string, o ...advisory.Option) error { _, err := locker.TryLock(t.Context(), n, o...); return err },
		"Lock":      func(n string, o ...advisory.Option) error { _, err := locker.Lock(t.Context(), n, o...); return err },
		"TryLockTx": func(n string, o ...advisory.Option) error { return advisory.TryLockTx(t.Context(), tx, n, o...) },
		"LockTx":    func(n string, o ...advisory.Option) error { return advisory.LockTx(t.Context(), tx, n, o...) },
	}
	for name, call := range calls {
		for _, bad := range []string{"", strings.Repeat("x", 513), "a\x00", "\xff", "a\n"} {
			invalid(t, name, call(bad), "resource", "must")
		}
		invalid(t, name, call("a", nil), "option", "must not be nil")
		for _, limit := range []time.Duration{time.Millisecond - 1, 24*time.Hour + 1, math.MaxInt64} {
			invalid(t, name, call("a", advisory.WithLimit(limit)), "limit", "from 1ms to 24h0m0s")
		}
		if strings.HasPrefix(name, "Try") {
			invalid(t, name, call("a", advisory.WithLimit(time.Second)), "limit", "does not wait")
		}
	}
	for name, handle := range map[string]bun.IDB{
		"nil": nil, "a *bun.DB": db, "a zero bun.Tx": bun.Tx{}, "a zero bun.Conn": bun.Conn{},
		"a nil *bunstore.Tx": (*bunstore.Tx)(nil), "a zero *bunstore.Tx": new(bunstore.Tx),
	} {
		invalid(t, name, advisory.LockTx(t.Context(), handle, "a"), "transaction", "must")
		invalid(t, name, advisory.TryLockTx(t.Context(), handle, "a"), "transaction", "must")
	}
	if n := fake.asked.Load(); n != 0 {
		t.Errorf("the database was asked %d times", n)
	}

	db.SetMaxOpenConns(1)
	locker, err = advisory.New(db)
	if err != nil {
		t.Fatal(err)
	}
	_, err = locker.TryLock(t.Context(), "a")
	invalid(t, "a pool of one", err, "db", "two connections")
	invalid(t, "a pool of one", locker.Check(t.Context()), "db", "two connections")
}
