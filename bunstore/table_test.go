package bunstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/locks"
)

func TestTableNames(t *testing.T) {
	for _, test := range []struct {
		schema, name             string
		quoted, sequence, tokens string
		literal, text            string
	}{
		{"", "", `"distributed_locks"`, `"distributed_locks_token_seq"`, `"distributed_locks_tokens"`, `'"distributed_locks"'`, "distributed_locks"},
		{"app", "leases", `"app"."leases"`, `"app"."leases_token_seq"`, `"app"."leases_tokens"`, `'"app"."leases"'`, "app.leases"},
		{"", `My "Leases"`, `"My ""Leases"""`, `"My ""Leases""_token_seq"`, `"My ""Leases""_tokens"`, `'"My ""Leases"""'`, `"My ""Leases"""`},
		{"a.b", "Ä", `"a.b"."Ä"`, `"a.b"."Ä_token_seq"`, `"a.b"."Ä_tokens"`, `'"a.b"."Ä"'`, `"a.b"."Ä"`},
		{"a", `b\c`, `"a"."b\c"`, `"a"."b\c_token_seq"`, `"a"."b\c_tokens"`, `E'"a"."b\\c"'`, `a."b\c"`},
	} {
		got, err := newTable(test.schema, test.name)
		if err != nil {
			t.Errorf("newTable(%q, %q): %v", test.schema, test.name, err)
			continue
		}
		for _, pair := range [][2]string{
			{got.quoted(), test.quoted},
			{got.sequenceQuoted(), test.sequence},
			{got.tokensQuoted(), test.tokens},
			{got.regclassLiteral(), test.literal},
			{got.String(), test.text},
		} {
			if pair[0] != pair[1] {
				t.Errorf("newTable(%q, %q): got %s, want %s", test.schema, test.name, pair[0], pair[1])
			}
		}
	}
}

func TestTableRefusesNames(t *testing.T) {
	for _, test := range []struct{ schema, name, field string }{
		{"", strings.Repeat("x", 53), "table"},
		{"", "a\x00b", "table"},
		{"", "a\nb", "table"},
		{"", "a\xff", "table"},
		{"", "a$1", "table"},
		{"", "it's", "table"},
		{"a$", "t", "schema"},
		{strings.Repeat("x", 64), "t", "schema"},
		{"a\x00", "t", "schema"},
	} {
		_, err := newTable(test.schema, test.name)
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("newTable(%q, %q) = %v, want an InvalidError for %s", test.schema, test.name, err, test.field)
		}
	}
	for _, option := range []TableOption{WithTable(""), WithSchema("")} {
		if err := option.applyTable(new(table)); !errors.Is(err, locks.ErrInvalid) {
			t.Errorf("an empty name: %v, want ErrInvalid", err)
		}
	}
	if _, err := newTable("", strings.Repeat("x", 52)); err != nil {
		t.Errorf("52 bytes: %v", err)
	}
}

func TestTableValidFor(t *testing.T) {
	for _, test := range []struct {
		table   table
		dialect dialect.Name
		field   string
	}{
		{table{name: "t"}, dialect.PG, ""},
		{table{schema: "app", name: "t"}, dialect.PG, ""},
		{table{name: "t"}, dialect.SQLite, ""},
		{table{schema: "main", name: "t"}, dialect.SQLite, ""},
		{table{schema: "app", name: "t"}, dialect.SQLite, "schema"},
		{table{name: "SQLite_t"}, dialect.SQLite, "table"},
		{table{name: "t"}, dialect.MySQL, "dialect"},
		{table{name: "t"}, dialect.MSSQL, "dialect"},
	} {
		err := test.table.validFor(test.dialect)
		var invalid *locks.InvalidError
		if test.field == "" && err != nil || test.field != "" && (!errors.As(err, &invalid) || invalid.Field != test.field) {
			t.Errorf("%s on %s: %v, want field %q", test.table, test.dialect, err, test.field)
		}
	}
	if err := (table{name: "t"}).validFor(dialect.MySQL); err == nil || !strings.Contains(err.Error(), "mysql") {
		t.Errorf("the error does not name the dialect: %v", err)
	}
}
