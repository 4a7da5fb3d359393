package model

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/rowlease/rowlease/locks"
)

type account struct {
	bun.BaseModel `bun:"table:bank.accounts"`

	ID      int64 `bun:",pk"`
	Balance int64
	Version int64 `bun:"v"`
	Total   int64 `bun:",scanonly"`
}

type line struct {
	Invoice int64 `bun:",pk"`
	Number  int   `bun:",pk"`
}

type keyless struct{ Name string }

func TestRowOf(t *testing.T) {
	t.Parallel()
	dialect := sqlitedialect.New()
	row, err := RowOf(dialect, &account{ID: 7})
	if err != nil || row.Table.Name != "bank.accounts" || len(row.Table.PKs) != 1 || row.Table.PKs[0].Name != "id" {
		t.Fatalf("RowOf = %+v, %v", row, err)
	}
	if field, err := row.Column("v"); err != nil || field.Value(row.Struct).Int() != 0 || field.GoName != "Version" {
		t.Errorf("Column(v) = %v, %v", field, err)
	}
	for _, name := range []string{"Version", "version", "total", ""} {
		if _, err := row.Column(name); !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("Column(%q) err = %v, want invalid", name, err)
		}
	}
	for _, test := range []struct {
		name  string
		model any
		want  string
	}{
		{"nil", nil, "must not be nil"},
		{"nil pointer", (*account)(nil), "must not be a nil *model.account"},
		{"struct", account{}, "must be a pointer, got model.account"},
		{"number", new(int), "must be a pointer to a struct, got *int"},
		{"slice", &[]account{}, "must be a pointer to a struct, got *[]model.account"},
		{"pointer to a pointer", new(*account), "must be a pointer to a struct, got **model.account"},
		{"no key", &keyless{}, "must have a primary key"},
		{"time", &time.Time{}, "must have a primary key"},
		{"scanner", &sql.NullInt64{}, "scans itself"},
	} {
		_, err := RowOf(dialect, test.model)
		isInvalid(t, test.name, err, test.want)
	}
}

func TestHasKey(t *testing.T) {
	t.Parallel()
	dialect := sqlitedialect.New()
	for _, test := range []struct {
		model any
		want  string
	}{
		{&account{ID: 1}, ""},
		{&account{}, "must have its primary key set, got a model.account without"},
		{&line{Invoice: 1}, ""},
		{&line{}, "must have its primary key set"},
	} {
		row, err := RowOf(dialect, test.model)
		if err != nil {
			t.Fatal(err)
		}
		err = row.HasKey()
		if test.want == "" && err != nil {
			t.Errorf("HasKey of %+v = %v", test.model, err)
		}
		if test.want != "" {
			isInvalid(t, "HasKey", err, test.want)
		}
	}
}

func TestSliceOf(t *testing.T) {
	t.Parallel()
	dialect := sqlitedialect.New()
	for _, model := range []any{&[]account{}, &[]*account{}, new([]account)} {
		if table, err := SliceOf(dialect, model); err != nil || table.Name != "bank.accounts" || !IsSlice(model) {
			t.Errorf("SliceOf(%T) = %v, %v", model, table, err)
		}
	}
	for _, test := range []struct {
		name  string
		model any
		want  string
	}{
		{"nil", nil, "must not be nil"},
		{"nil pointer", (*[]account)(nil), "must not be a nil"},
		{"slice", []account{}, "must be a pointer, got []model.account"},
		{"struct", &account{}, "must be a pointer to a slice, got *model.account"},
		{"numbers", &[]int{}, "must be a pointer to a slice of structs"},
		{"no key", &[]keyless{}, "must have a primary key"},
	} {
		_, err := SliceOf(dialect, test.model)
		isInvalid(t, test.name, err, test.want)
	}
	if IsSlice(nil) || IsSlice([]account{}) || IsSlice(&account{}) {
		t.Error("IsSlice takes what is no pointer to a slice")
	}
}

func isInvalid(t *testing.T, name string, err error, want string) {
	t.Helper()
	var invalid *locks.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "model" || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: err = %v, want an InvalidError for the model with %q", name, err, want)
	}
}
