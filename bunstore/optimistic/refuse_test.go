package optimistic_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/locks"
)

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	type unversioned struct {
		ID int64 `bun:",pk"`
	}
	type keyless struct{ Version int64 }
	type textual struct {
		ID      int64 `bun:",pk"`
		Version string
	}
	type tiny struct {
		ID      int64 `bun:",pk"`
		Version int8
	}
	type unsigned struct {
		ID      int64 `bun:",pk"`
		Version uint64
	}
	type versionInKey struct {
		ID      int64 `bun:",pk"`
		Version int64 `bun:",pk"`
	}
	db := open(t, (*account)(nil), (*tiny)(nil))
	insert(t, db, &account{ID: 7, Owner: "ada", Balance: 10, Version: math.MaxInt64})
	insert(t, db, &tiny{ID: 7, Version: math.MaxInt8})
	for _, test := range []struct {
		name    string
		db      bun.IDB
		model   any
		options []optimistic.Option
		field   string
	}{
		{"no database", nil, &account{ID: 7}, nil, "db"},
		{"nil database", (*bun.DB)(nil), &account{ID: 7}, nil, "db"},
		{"zero transaction", bun.Tx{}, &account{ID: 7}, nil, "db"},
		{"zero connection", bun.Conn{}, &account{ID: 7}, nil, "db"},
		{"nil", db, nil, nil, "model"},
		{"nil pointer", db, (*account)(nil), nil, "model"},
		{"struct", db, account{ID: 7}, nil, "model"},
		{"slice", db, &[]account{{ID: 7}}, nil, "model"},
		{"no version", db, &unversioned{ID: 7}, nil, "model"},
		{"no such version", db, &account{ID: 7}, []optimistic.Option{optimistic.WithVersionColumn("revision")}, "model"},
		{"text for a version", db, &textual{ID: 7}, nil, "model"},
		{"version in the key", db, &versionInKey{ID: 7, Version: 1}, nil, "model"},
		{"version in a nil struct", db, &page{Site: "a"}, []optimistic.Option{optimistic.WithVersionColumn("revision")}, "model"},
		{"no primary key", db, &keyless{}, nil, "model"},
		{"zero primary key", db, &account{Owner: "ada", Version: 1}, nil, "model"},
		{"largest version", db, &account{ID: 7, Version: math.MaxInt64}, nil, "model"},
		{"largest version of its type", db, &tiny{ID: 7, Version: math.MaxInt8}, nil, "model"},
		{"larger than any column", db, &unsigned{ID: 7, Version: math.MaxUint64}, nil, "model"},
		{"larger than any column's next", db, &unsigned{ID: 7, Version: math.MaxInt64}, nil, "model"},
		{"unknown column", db, &account{ID: 7}, []optimistic.Option{optimistic.WithColumns("x")}, "model"},
		{"key as a column", db, &account{ID: 7}, []optimistic.Option{optimistic.WithColumns("id")}, "columns"},
		{"version as a column", db, &account{ID: 7}, []optimistic.Option{optimistic.WithColumns("version")}, "columns"},
		{"column that is never updated", db, &page{Base: &Base{}, Site: "a"}, []optimistic.Option{
			optimistic.WithColumns("created"), optimistic.WithVersionColumn("revision"),
		}, "columns"},
		{"column twice", db, &account{ID: 7}, []optimistic.Option{optimistic.WithColumns("owner", "balance", "owner")}, "columns"},
		{"nil option", db, &account{ID: 7}, []optimistic.Option{nil}, "option"},
		{"no columns", db, &account{ID: 7}, []optimistic.Option{optimistic.WithColumns()}, "columns"},
		{"nameless version", db, &account{ID: 7}, []optimistic.Option{optimistic.WithVersionColumn("")}, "version column"},
	} {
		isInvalid(t, test.name, optimistic.Update(t.Context(), test.db, test.model, test.options...), test.field)
		if !strings.HasPrefix(test.name, "large") { // which can be deleted
			isInvalid(t, "delete: "+test.name, optimistic.Delete(t.Context(), test.db, test.model, test.options...), test.field)
		}
	}
	if got, want := stored(t, db, account{ID: 7}), (account{7, "ada", 10, math.MaxInt64}); got != want {
		t.Errorf("the row became %+v", got)
	}
	if got := stored(t, db, tiny{ID: 7}); got.Version != math.MaxInt8 {
		t.Errorf("the tiny row became %+v", got)
	}
}

// A table whose key is no key is found out, though too late for the rows: that is not an error after which nothing was
// written.
func TestWritesOfSeveralRowsSaySo(t *testing.T) {
	t.Parallel()
	db := open(t)
	execSQL(t, db, "CREATE TABLE accounts (id INTEGER, owner TEXT, balance INTEGER, version INTEGER)")
	a := account{ID: 7}
	for name, write := range map[string]func() error{
		"Update": func() error { return optimistic.Update(t.Context(), db, &a) },
		"Delete": func() error { return optimistic.Delete(t.Context(), db, &a) },
	} {
		execSQL(t, db, "DELETE FROM accounts")
		execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 1, 0), (7, 'bob', 1, 0)")
		err := write()
		if err == nil || !strings.Contains(err.Error(), "2 rows of accounts were written") {
			t.Fatalf("%s: err = %v, want one that tells of 2 rows", name, err)
		}
		for _, answer := range []error{locks.ErrInvalid, locks.ErrRetryable, locks.ErrNotFound} {
			if errors.Is(err, answer) {
				t.Errorf("%s: %v is %v, after which nothing was written", name, err, answer)
			}
		}
		if a.Version != 0 {
			t.Errorf("%s: the struct became %+v", name, a)
		}
	}
}

// A column is one name, and a dot in it no qualification.
func TestVersionColumnWithADot(t *testing.T) {
	t.Parallel()
	type dotted struct {
		bun.BaseModel `bun:"table:accounts"`
		ID            int64 `bun:",pk"`
		Balance       int64
		Version       int64 `bun:"row.version"`
	}
	db := open(t)
	execSQL(t, db, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, "row.version" INTEGER)`)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 10, 3)")
	column := optimistic.WithVersionColumn("row.version")
	a := dotted{ID: 7, Balance: 20, Version: 3}
	if err := optimistic.Update(t.Context(), db, &a, column); err != nil || a.Version != 4 {
		t.Errorf("Update = %v, version %d", err, a.Version)
	}
	var conflict *optimistic.ConflictError
	if err := optimistic.Update(t.Context(), db, &dotted{ID: 7, Version: 3}, column); !errors.As(err, &conflict) || conflict.Current != 4 {
		t.Errorf("err = %v, want a conflict with 4", err)
	}
	if err := optimistic.Delete(t.Context(), db, &a, column); err != nil {
		t.Errorf("Delete: %v", err)
	}
}
