package optimistic_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/locks"
)

type account struct {
	ID      int64 `bun:",pk"`
	Owner   string
	Balance int64
	Version int64
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	insert(t, db, &account{ID: 7, Owner: "ada", Balance: 10})
	insert(t, db, &account{ID: 8, Owner: "bob"})

	first, second := account{ID: 7}, account{ID: 7}
	first, second = stored(t, db, first), stored(t, db, second)
	first.Balance += 5
	if err := optimistic.Update(t.Context(), db, &first); err != nil {
		t.Fatalf("Update: %v", err)
	}
	if want := (account{7, "ada", 15, 1}); first != want || stored(t, db, account{ID: 7}) != want {
		t.Errorf("the struct is %+v, the row %+v, want %+v", first, stored(t, db, account{ID: 7}), want)
	}

	second.Balance, second.Owner = 99, "eve"
	before := second
	err := optimistic.Update(t.Context(), db, &second)
	var conflict *optimistic.ConflictError
	if !errors.As(err, &conflict) || *conflict != (optimistic.ConflictError{Table: "accounts", Read: 0, Current: 1}) {
		t.Fatalf("Update at an old version = %v, want a ConflictError of 0 and 1", err)
	}
	if !errors.Is(err, optimistic.ErrConflict) || !errors.Is(err, locks.ErrRetryable) || errors.Is(err, locks.ErrNotFound) {
		t.Errorf("%v is not ErrConflict and retryable alone", err)
	}
	if second != before || stored(t, db, account{ID: 7}) != first {
		t.Errorf("after a conflict the struct is %+v, the row %+v", second, stored(t, db, account{ID: 7}))
	}

	gone := account{ID: 9, Balance: 1, Version: 4}
	err = optimistic.Update(t.Context(), db, &gone)
	if !errors.Is(err, optimistic.ErrNotFound) || !errors.Is(err, locks.ErrNotFound) || errors.Is(err, locks.ErrRetryable) || errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("Update of a row that is gone = %v, want ErrNotFound alone", err)
	}
	if gone != (account{ID: 9, Balance: 1, Version: 4}) {
		t.Errorf("the struct of a row that is gone became %+v", gone)
	}
	if other := stored(t, db, account{ID: 8}); other != (account{ID: 8, Owner: "bob"}) {
		t.Errorf("another row became %+v", other)
	}
}

func TestUpdateOfSomeColumns(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	insert(t, db, &account{ID: 7, Owner: "ada", Balance: 10})
	a := account{ID: 7, Owner: "not written", Balance: 20}
	if err := optimistic.Update(t.Context(), db, &a, optimistic.WithColumns("balance")); err != nil {
		t.Fatal(err)
	}
	if got, want := stored(t, db, account{ID: 7}), (account{7, "ada", 20, 1}); got != want {
		t.Errorf("the row is %+v, want %+v", got, want)
	}
}

// Base is embedded by pointer: what a call does to it must be undone as well.
type Base struct {
	Revision  uint8
	UpdatedAt time.Time
}

type page struct {
	bun.BaseModel `bun:"table:pages"`
	*Base

	Site    string `bun:",pk"`
	Path    string `bun:",pk"`
	Created string `bun:",skipupdate"`
	Body    string
	hook    func(bun.Query) error
}

var _ bun.BeforeAppendModelHook = (*page)(nil)

func (p *page) BeforeAppendModel(_ context.Context, query bun.Query) error {
	if _, ok := query.(*bun.SelectQuery); ok || p.hook == nil {
		return nil
	}
	p.Body += "!"
	p.UpdatedAt = time.Unix(1_800_000_000, 0).UTC()
	return p.hook(query)
}

func TestUpdateWithHooksKeysAndEmbeddedStructs(t *testing.T) {
	t.Parallel()
	db := open(t, (*page)(nil))
	insert(t, db, &page{Base: &Base{Revision: 3}, Site: "a", Path: "/", Created: "then", Body: "old"})
	insert(t, db, &page{Base: &Base{Revision: 3}, Site: "b", Path: "/", Created: "then", Body: "old"})
	revision := optimistic.WithVersionColumn("revision")
	ran := func(bun.Query) error { return nil }

	p := &page{Base: &Base{Revision: 3}, Site: "a", Path: "/", Created: "now", Body: "new", hook: ran}
	if err := optimistic.Update(t.Context(), db, p, revision); err != nil {
		t.Fatal(err)
	}
	if p.Revision != 4 || p.Body != "new!" || p.UpdatedAt.Unix() != 1_800_000_000 {
		t.Errorf("the struct is %+v %+v", p, p.Base)
	}
	row := stored(t, db, page{Site: "a", Path: "/"})
	if row.Revision != 4 || row.Body != "new!" || row.UpdatedAt.Unix() != 1_800_000_000 || row.Created != "then" {
		t.Errorf("the row is %+v %+v", row, row.Base)
	}
	if other := stored(t, db, page{Site: "b", Path: "/"}); other.Revision != 3 || other.Body != "old" {
		t.Errorf("the row with the other half of the key is %+v %+v", other, other.Base)
	}

	boom := errors.New("boom")
	for name, test := range map[string]struct {
		revision uint8
		hook     func(bun.Query) error
		want     error
	}{
		"conflict": {3, ran, optimistic.ErrConflict},
		"hook":     {4, func(bun.Query) error { return boom }, boom},
		"panic":    {4, func(bun.Query) error { panic(boom) }, boom},
	} {
		p := &page{Base: &Base{Revision: test.revision}, Site: "a", Path: "/", Body: "late", hook: test.hook}
		embedded := p.Base
		err := recovered(func() error { return optimistic.Update(t.Context(), db, p, revision) })
		if !errors.Is(err, test.want) {
			t.Errorf("%s: err = %v, want %v", name, err, test.want)
		}
		if p.Base != embedded || *p.Base != (Base{Revision: test.revision}) || p.Body != "late" {
			t.Errorf("%s: the struct became %+v %+v", name, p, p.Base)
		}
	}
	if got := stored(t, db, page{Site: "a", Path: "/"}); !reflect.DeepEqual(got, row) {
		t.Errorf("the row became %+v", got)
	}
}

func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

// A version column that was added to a table with rows is NULL there.
func TestUpdateOfARowWithoutAVersion(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	execSQL(t, db, "INSERT INTO accounts (id, owner, balance, version) VALUES (7, 'ada', 10, NULL)")
	a := stored(t, db, account{ID: 7})
	if err := optimistic.Update(t.Context(), db, &a); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, db, account{ID: 7}); got.Version != 1 {
		t.Errorf("version %d, want 1", got.Version)
	}
	execSQL(t, db, "UPDATE accounts SET version = NULL")
	var conflict *optimistic.ConflictError
	if err := optimistic.Update(t.Context(), db, &a); !errors.As(err, &conflict) || conflict.Current != 0 {
		t.Errorf("err = %v, want a conflict with 0", err)
	}
}

func TestUpdateTellsFaultsFromAnswers(t *testing.T) {
	t.Parallel()
	db := open(t)
	a := account{ID: 7, Version: 3}
	err := optimistic.Update(t.Context(), db, &a) // no table
	for _, answer := range []error{locks.ErrRetryable, locks.ErrNotFound, locks.ErrInvalid} {
		if err == nil || errors.Is(err, answer) {
			t.Errorf("without a table: err = %v, want one that is not %v", err, answer)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := optimistic.Update(ctx, db, &a); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: err = %v, want context.Canceled", err)
	}
	if a != (account{ID: 7, Version: 3}) {
		t.Errorf("the struct became %+v", a)
	}
}

func TestUpdateOnATransactionAndAConnection(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	insert(t, db, &account{ID: 7})
	a := account{ID: 7}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := optimistic.Update(t.Context(), tx, &a); err != nil {
		t.Fatalf("in a transaction: %v", err)
	}
	if err := optimistic.Update(t.Context(), tx, &account{ID: 7}); !errors.Is(err, optimistic.ErrConflict) {
		t.Errorf("in a transaction at an old version: %v, want a conflict", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, db, account{ID: 7}); got.Version != 0 {
		t.Errorf("version %d after a rollback, want 0", got.Version)
	}
	isInvalid(t, "transaction is over", optimistic.Update(t.Context(), tx, &account{ID: 7}), "transaction")

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a = account{ID: 7}
	if err := optimistic.Update(t.Context(), conn, &a); err != nil || a.Version != 1 {
		t.Errorf("on a connection: version %d, %v", a.Version, err)
	}

	// A transaction that has read before another wrote cannot write in SQLite.
	tx, err = db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	old := stored(t, tx, account{ID: 7})
	if err := optimistic.Update(t.Context(), conn, &a); err != nil {
		t.Fatal(err)
	}
	if err := optimistic.Update(t.Context(), tx, &old); !errors.Is(err, locks.ErrStaleSnapshot) || old.Version != 1 {
		t.Errorf("with an old snapshot: version %d, %v, want ErrStaleSnapshot", old.Version, err)
	}
}

func TestIncrementsAreNotLost(t *testing.T) {
	t.Parallel()
	db := open(t, (*account)(nil))
	insert(t, db, &account{ID: 7})
	const workers, each = 8, 50
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range each {
				err := optimistic.Retry(t.Context(), func(ctx context.Context) error {
					a := account{ID: 7}
					if err := db.NewSelect().Model(&a).WherePK().Scan(ctx); err != nil {
						return err
					}
					a.Balance++
					return optimistic.Update(ctx, db, &a)
				}, optimistic.WithTries(10_000), optimistic.WithBackoff(time.Millisecond, 20*time.Millisecond))
				if err != nil {
					t.Errorf("Retry: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	if got := stored(t, db, account{ID: 7}); got.Balance != workers*each || got.Version != workers*each {
		t.Errorf("balance %d at version %d, want %d at both", got.Balance, got.Version, workers*each)
	}
}

// replica is a resolver that sends SELECTs to another database, which is behind.
type replica struct{ behind *bun.DB }

func (r replica) Close() error { return nil }

func (r replica) ResolveConn(_ context.Context, query bun.Query) bun.IConn {
	if query.Operation() == "SELECT" {
		return r.behind.DB
	}
	return nil
}

// app is a host's own type for its database.
type app struct{ *bun.DB }

func TestARefusalIsNotAReplicasAnswer(t *testing.T) {
	t.Parallel()
	behind, db := open(t, (*account)(nil)), open(t, (*account)(nil))
	insert(t, db, &account{ID: 7, Version: 4})
	routed := bun.NewDB(db.DB, db.Dialect(), bun.WithConnResolver(replica{behind}))
	for name, db := range map[string]bun.IDB{"database": routed, "host's type": app{routed}} {
		if err := optimistic.Update(t.Context(), db, &account{ID: 7, Version: 3}); !errors.Is(err, optimistic.ErrConflict) {
			t.Errorf("%s: err = %v, want a conflict", name, err)
		}
	}
}
