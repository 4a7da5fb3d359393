package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/locks"
)

// Fenced is embedded by pointer: a refused call must not make one.
type Fenced struct{ FenceToken int64 }

func TestWritesRefuse(t *testing.T) {
	t.Parallel()
	type keyless struct{ Balance int64 }
	type narrow struct {
		ID         int64 `bun:",pk"`
		FenceToken int32
	}
	type scanned struct {
		bun.BaseModel `bun:"table:accounts"`
		ID            int64 `bun:",pk"`
		FenceToken    int64 `bun:",scanonly"`
	}
	type renamed struct {
		bun.BaseModel `bun:"table:accounts"`
		ID            int64 `bun:",pk"`
		Balance       int64 `bun:",alt:fence_token"`
	}
	type embedded struct {
		bun.BaseModel `bun:"table:accounts"`
		*Fenced
		ID int64 `bun:",pk"`
	}
	db := open(t, accountTable, reportTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (0, 'nobody', 10, NULL), (7, 'ada', 10, NULL)")
	a := account{ID: 7}
	for _, test := range []struct {
		name    string
		db      bun.IDB
		model   any
		token   int64
		options []fence.Option
		field   string
	}{
		{"no database", nil, &a, 1, nil, "db"},
		{"nil database", (*bun.DB)(nil), &a, 1, nil, "db"},
		{"zero transaction", bun.Tx{}, &a, 1, nil, "db"},
		{"zero connection", bun.Conn{}, &a, 1, nil, "db"},
		{"no token", db, &a, 0, nil, "token"},
		{"negative token", db, &a, -1, nil, "token"},
		{"token beyond all", db, &a, 1 << 53, nil, "token"},
		{"nil", db, nil, 1, nil, "model"},
		{"nil pointer", db, (*account)(nil), 1, nil, "model"},
		{"struct", db, a, 1, nil, "model"},
		{"slice", db, &[]account{a}, 1, nil, "model"},
		{"no primary key", db, &keyless{}, 1, nil, "model"},
		{"zero primary key", db, &account{}, 1, nil, "model"},
		{"narrow token", db, &narrow{ID: 7}, 1, nil, "model"},
		{"token that is only read", db, &scanned{ID: 7}, 1, nil, "model"},
		{"token by another name", db, &renamed{ID: 7}, 1, nil, "model"},
		{"token in a nil struct", db, &embedded{ID: 7}, 1, nil, "model"},
		{"text for a token", db, &a, 1, []fence.Option{fence.WithTokenColumn("owner")}, "model"},
		{"key for a token", db, &a, 1, []fence.Option{fence.WithTokenColumn("id")}, "model"},
		{"unknown column", db, &a, 1, []fence.Option{fence.WithColumns("x")}, "model"},
		{"key as a column", db, &a, 1, []fence.Option{fence.WithColumns("id")}, "columns"},
		{"column that is never updated", db, &report{Site: "a"}, 1, []fence.Option{fence.WithColumns("created")}, "columns"},
		{"token as a column", db, &report{Site: "a"}, 1, []fence.Option{fence.WithColumns("token"), fence.WithTokenColumn("token")}, "columns"},
		{"column twice", db, &a, 1, []fence.Option{fence.WithColumns("balance", "owner"), fence.WithColumns("balance")}, "columns"},
		{"nil option", db, &a, 1, []fence.Option{nil}, "option"},
		{"no columns", db, &a, 1, []fence.Option{fence.WithColumns()}, "columns"},
		{"no expression", db, &a, 1, []fence.Option{fence.WithSet("")}, "set"},
		{"nameless token", db, &a, 1, []fence.Option{fence.WithTokenColumn("")}, "token column"},
	} {
		for name, write := range map[string]func(context.Context, bun.IDB, any, int64, ...fence.Option) error{
			"Update": fence.Update, "Upsert": fence.Upsert, "Advance": fence.Advance,
		} {
			isInvalid(t, name+": "+test.name, write(t.Context(), test.db, test.model, test.token, test.options...), test.field)
		}
	}
	if got := scan[int](t, db, "SELECT count(*) FROM accounts WHERE balance = 10 AND fence_token IS NULL"); got != 2 {
		t.Errorf("%d of 2 rows are untouched", got)
	}
}

// A table whose key is no key is found out, though too late for the rows: that is not an error after which nothing was
// written.
func TestUpdateOfSeveralRowsSaysSo(t *testing.T) {
	t.Parallel()
	db := open(t, "CREATE TABLE accounts (id INTEGER, owner TEXT, balance INTEGER, fence_token INTEGER)")
	execSQL(t, db, "INSERT INTO accounts (id, balance) VALUES (7, 1), (7, 1)")
	err := fence.Update(t.Context(), db, &account{ID: 7}, 5)
	if err == nil || !strings.Contains(err.Error(), "2 rows of accounts were written") {
		t.Fatalf("err = %v, want one that tells of 2 rows", err)
	}
	for _, answer := range []error{locks.ErrInvalid, locks.ErrLost, locks.ErrRetryable, locks.ErrNotFound} {
		if errors.Is(err, answer) {
			t.Errorf("%v is %v, after which nothing was written", err, answer)
		}
	}
}

// A column is one name, and a dot in it no qualification.
func TestUpdateOfAColumnWithADot(t *testing.T) {
	t.Parallel()
	db := open(t, `CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER, "fence.token" INTEGER)`)
	execSQL(t, db, "INSERT INTO accounts (id) VALUES (7)")
	column := fence.WithTokenColumn("fence.token")
	if err := fence.Update(t.Context(), db, &account{ID: 7, Balance: 1}, 5, column); err != nil {
		t.Errorf("Update: %v", err)
	}
	if err := fence.Advance(t.Context(), db, &account{ID: 7}, 6, column); err != nil {
		t.Errorf("Advance: %v", err)
	}
	isStale(t, "late", fence.Update(t.Context(), db, &account{ID: 7}, 5, column), fence.StaleError{Table: "accounts", Token: 5, Stored: 6})
	isInvalid(t, "Upsert", fence.Upsert(t.Context(), db, &account{ID: 7}, 7, column), "token column") // bun cannot
	if got := scan[string](t, db, `SELECT balance || ' ' || "fence.token" FROM accounts`); got != "1 6" {
		t.Errorf("the row is %q, want 1 6", got)
	}
}

type logged struct{ lines []string }

func (l *logged) Printf(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// bun warns of arguments without a placeholder: there are none where the caller gave none. Not parallel, as bun has one
// logger.
func TestAnExpressionWithoutArgumentsIsQuiet(t *testing.T) {
	var log logged
	bun.SetLogger(&log)
	defer bun.SetLogger(nil)
	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, NULL)")
	if err := fence.Update(t.Context(), db, &account{ID: 7}, 5, fence.WithSet("balance = balance + 1")); err != nil {
		t.Error(err)
	}
	if err := fence.Upsert(t.Context(), db, &account{ID: 7}, 6, fence.WithSet("balance = ?TableAlias.balance + 1")); err != nil {
		t.Error(err)
	}
	if got := scan[string](t, db, "SELECT balance || ' ' || fence_token FROM accounts"); got != "12 6" || log.lines != nil {
		t.Errorf("the row is %q, want 12 6; bun said %q", got, log.lines)
	}
}
