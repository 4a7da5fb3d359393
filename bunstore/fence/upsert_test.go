package fence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/fence"
)

func TestUpsert(t *testing.T) {
	t.Parallel()
	db := open(t, accountTable)
	// The driver's count of rows is that of the connection's last change: one connection shows whether it is taken anew.
	db.SetMaxOpenConns(1)
	const row = "SELECT owner || ' ' || balance || ' ' || fence_token FROM accounts WHERE id = 7"
	for _, step := range []struct {
		name    string
		model   account
		token   int64
		stale   int64
		options []fence.Option
		want    string
	}{
		{"no row", account{7, "ada", 1}, 5, 0, nil, "ada 1 5"},
		{"the same token", account{7, "bob", 2}, 5, 0, nil, "bob 2 5"},
		{"an older one", account{7, "eve", 3}, 4, 5, nil, "bob 2 5"},
		{"a newer one", account{7, "joe", 4}, 6, 0, nil, "joe 4 6"},
		{"a column", account{7, "not written", 5}, 7, 0, []fence.Option{fence.WithColumns("balance")}, "joe 5 7"},
		{"an expression", account{7, "not written", 6}, 8, 0, []fence.Option{fence.WithSet("balance = ?TableAlias.balance + ?", 10)}, "joe 15 8"},
		{"late with an expression", account{7, "not written", 6}, 7, 8, []fence.Option{fence.WithSet("balance = ?TableAlias.balance + ?", 10)}, "joe 15 8"},
	} {
		err := fence.Upsert(t.Context(), db, &step.model, step.token, step.options...)
		if step.stale == 0 && err != nil {
			t.Errorf("%s: %v", step.name, err)
		} else if step.stale != 0 {
			isStale(t, step.name, err, fence.StaleError{Table: "accounts", Token: step.token, Stored: step.stale})
		}
		if got := scan[string](t, db, row); got != step.want {
			t.Errorf("%s: the row is %q, want %q", step.name, got, step.want)
		}
	}
}

// bun leaves a column with a default to the database when the struct has zero there: not the token's.
func TestUpsertOfAModelWithTheToken(t *testing.T) {
	t.Parallel()
	db := open(t, reportTable)
	column := fence.WithTokenColumn("token")
	const row = "SELECT group_concat(site || body || created || token) FROM reports"
	r := report{Site: "a", Day: "1", Body: "new", Created: "then"}
	if err := fence.Upsert(t.Context(), db, &r, 5, column); err != nil || r.Token != 5 {
		t.Fatalf("Upsert = %v, the struct's token is %d", err, r.Token)
	}
	if got, want := scan[string](t, db, row), "anewthen5"; got != want {
		t.Errorf("the row is %q, want %q", got, want)
	}
	late := report{Site: "a", Day: "1", Body: "late", Token: 9}
	isStale(t, "late", fence.Upsert(t.Context(), db, &late, 4, column), fence.StaleError{Table: "reports", Token: 4, Stored: 5})
	if late.Token != 9 {
		t.Errorf("the late struct's token became %d", late.Token)
	}
	r = report{Site: "a", Day: "1", Body: "newer", Created: "never updated"}
	if err := fence.Upsert(t.Context(), db, &r, 6, column); err != nil {
		t.Fatal(err)
	}
	if err := fence.Upsert(t.Context(), db, &report{Site: "a", Day: "2", Body: "other", Created: "now"}, 1, column); err != nil {
		t.Errorf("another row of half the key: %v", err)
	}
	if got, want := scan[string](t, db, row), "anewerthen6,aothernow1"; got != want {
		t.Errorf("the rows are %q, want %q", got, want)
	}
}

// Half a key that the database fills in names no row: each call would insert another one.
func TestUpsertRefusesAKeyThatIsMadeUp(t *testing.T) {
	t.Parallel()
	type counted struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64 `bun:",pk"`
		Number        int64 `bun:",pk,autoincrement"`
	}
	type identity struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64 `bun:",pk"`
		Number        int64 `bun:",pk,identity"`
	}
	type nullzero struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64 `bun:",pk"`
		Number        int64 `bun:",pk,nullzero"`
	}
	type defaulted struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64 `bun:",pk"`
		Number        int64 `bun:",pk,default:abs(random())"`
	}
	type pointed struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64  `bun:",pk"`
		Number        *int64 `bun:",pk"`
	}
	type nullable struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64         `bun:",pk"`
		Number        sql.NullInt64 `bun:",pk"`
	}
	type plain struct {
		bun.BaseModel `bun:"table:lines"`
		Invoice       int64 `bun:",pk"`
		Number        int64 `bun:",pk"`
	}
	db := open(t, "CREATE TABLE lines (invoice INTEGER, number INTEGER DEFAULT (abs(random())), fence_token INTEGER, PRIMARY KEY (invoice, number))")
	for _, model := range []any{
		&counted{Invoice: 1}, &identity{Invoice: 1}, &nullzero{Invoice: 1}, &defaulted{Invoice: 1}, &pointed{Invoice: 1}, &nullable{Invoice: 1},
	} {
		isInvalid(t, fmt.Sprintf("%T", model), fence.Upsert(t.Context(), db, model, 5), "model")
	}
	if n := scan[int](t, db, "SELECT count(*) FROM lines"); n != 0 {
		t.Errorf("%d rows were inserted", n)
	}
	one := int64(1)
	for _, model := range []any{
		&plain{Invoice: 1}, &counted{Invoice: 1, Number: 1}, &identity{Invoice: 1, Number: 1}, &nullzero{Invoice: 1, Number: 1}, &defaulted{Invoice: 1, Number: 1}, &pointed{Invoice: 1, Number: &one},
	} {
		if err := fence.Upsert(t.Context(), db, model, 5); err != nil {
			t.Errorf("%T with its whole key: %v", model, err)
		}
	}
	if got := scan[string](t, db, "SELECT group_concat(invoice || number) FROM lines"); got != "10,11" {
		t.Errorf("the rows are %q, want 10,11", got)
	}
}

func TestUpsertOfASoftDeletedRow(t *testing.T) {
	t.Parallel()
	db := open(t, noteTable)
	execSQL(t, db, "INSERT INTO notes VALUES (7, 'old', current_timestamp, 5)")
	isStale(t, "late", fence.Upsert(t.Context(), db, &note{ID: 7, Body: "late"}, 4), fence.StaleError{Table: "notes", Token: 4, Stored: 5})
	if err := fence.Upsert(t.Context(), db, &note{ID: 7, Body: "new"}, 6); err != nil {
		t.Fatal(err)
	}
	if got := scan[string](t, db, "SELECT body || fence_token || (deleted_at IS NULL) FROM notes"); got != "new61" {
		t.Errorf("the row is %q, want new61", got)
	}
}

func TestCheckAndCondition(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]int64{{1, 0}, {5, 5}, {6, 5}} {
		if err := fence.Check(pair[0], pair[1]); err != nil {
			t.Errorf("Check%v = %v, want nil", pair, err)
		}
	}
	isStale(t, "Check", fence.Check(4, 5), fence.StaleError{Token: 4, Stored: 5})

	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, NULL)")
	statement := "UPDATE accounts SET balance = $1, fence_token = $2 WHERE id = 7 AND " + fence.Condition("fence_token", "$2")
	for _, step := range [][3]int64{{5, 1, 1}, {5, 2, 1}, {4, 3, 0}, {6, 4, 1}} { // token, balance, rows
		result, err := db.DB.ExecContext(t.Context(), statement, step[1], step[0])
		if err != nil {
			t.Fatal(err)
		}
		if n, err := result.RowsAffected(); n != step[2] || err != nil {
			t.Errorf("token %d: %d rows, %v, want %d", step[0], n, err, step[2])
		}
	}
	if got := scan[string](t, db, "SELECT balance || ' ' || fence_token FROM accounts"); got != "4 6" {
		t.Errorf("the row is %q, want 4 6", got)
	}
	if errors.Is(fence.ErrNotFound, fence.ErrStale) {
		t.Error("ErrNotFound is ErrStale")
	}
}
