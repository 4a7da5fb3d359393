package bunstore

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/locks"
)

// DefaultTable is the table's name where no option gives one.
const DefaultTable = "distributed_locks"

// maxTableBytes leaves room for the longest name derived from the table's ("<table>_migrations") in the 63 bytes that
// PostgreSQL keeps of an identifier: what is longer it cuts without an error, and two tables would share a sequence.
const maxTableBytes = 63 - len("_migrations")

// TableOption says which table holds the leases. The store, the migrations and the runner take the same ones: give all
// of them the same.
type TableOption interface {
	Option
	MigrationOption
	applyTable(*table) error
}

type tableOption func(*table) error

func (o tableOption) applyTable(t *table) error               { return o(t) }
func (o tableOption) applyMigration(c *migrationConfig) error { return o(&c.table) }

// WithTable names the table; the default is [DefaultTable]. The name is taken literally and quoted, so that case,
// blanks and dots are part of it: it is at most 52 bytes of UTF-8 without control characters, "'" and "$", which a
// driver takes for a string's and a placeholder's also within quotes. What belongs to the table is named after it: "<name>_token_seq" (PostgreSQL), "<name>_tokens" (SQLite), "<name>_waiters"
// and "<name>_shares" ("distributed_lock_waiters" and "distributed_lock_shares" beside the default), "<name>_migrations" (the
// runner).
func WithTable(name string) TableOption {
	return tableOption(func(t *table) error {
		if err := validateIdentifier("table", name, maxTableBytes); err != nil {
			return err
		}
		for _, suffix := range []string{"_token_seq", "_tokens", "_waiters", "_shares", "_migrations"} {
			if strings.HasSuffix(strings.ToLower(name), suffix) {
				return &locks.InvalidError{Field: "table", Reason: fmt.Sprintf("must not end in %s, which is what belongs to another table, got %q", suffix, name)}
			}
		}
		t.name = name
		return nil
	})
}

// WithSchema names the schema of the table and all that belongs to it. The default is none: PostgreSQL finds or makes
// the table by the connection's search_path, which must then be the same for every client, since two tables are two
// worlds. The schema must exist, the migrations do not create it. On SQLite only "main" is possible.
func WithSchema(name string) TableOption {
	return tableOption(func(t *table) error {
		if err := validateIdentifier("schema", name, 63); err != nil {
			return err
		}
		t.schema = name
		return nil
	})
}

// table names the table of leases, and what belongs to it.
type table struct {
	schema, name string // schema is "" for the connection's own
}

// newTable returns the named table; "" stands for [DefaultTable] and for no schema. The error is a
// [*locks.InvalidError] for "table" or "schema".
func newTable(schema, name string) (table, error) {
	t := table{name: DefaultTable}
	var options []TableOption
	if schema != "" {
		options = append(options, WithSchema(schema))
	}
	if name != "" {
		options = append(options, WithTable(name))
	}
	for _, option := range options {
		if err := option.applyTable(&t); err != nil {
			return table{}, err
		}
	}
	return t, nil
}

// validFor reports, as a [*locks.InvalidError], a dialect that has no statements here and a name that the dialect
// cannot have.
func (t table) validFor(name dialect.Name) error {
	switch name {
	case dialect.PG:
		return nil
	case dialect.SQLite:
		if t.schema != "" && t.schema != "main" {
			return &locks.InvalidError{Field: "schema", Reason: fmt.Sprintf("must be main or left out on SQLite, got %q", t.schema)}
		}
		if strings.HasPrefix(strings.ToLower(t.name), "sqlite_") {
			return &locks.InvalidError{Field: "table", Reason: fmt.Sprintf("must not begin with sqlite_ on SQLite, got %q", t.name)}
		}
		return nil
	default:
		return &locks.InvalidError{Field: "dialect", Reason: fmt.Sprintf("must be PostgreSQL's (pg) or SQLite's (sqlite), got %q", name)}
	}
}

// validDB is validFor the dialect of a database handle, which must be there.
func (t table) validDB(db *bun.DB) error {
	if db == nil || db.DB == nil {
		return &locks.InvalidError{Field: "db", Reason: "must not be nil"}
	}
	return t.validFor(db.Dialect().Name())
}

// quoted is the table's name as SQL: "schema"."name" or "name".
func (t table) quoted() string { return t.relation("") }

// sequenceQuoted is the token sequence's name as SQL (PostgreSQL).
func (t table) sequenceQuoted() string { return t.relation("_token_seq") }

// tokensQuoted is the name, as SQL, of the one-row table that keeps the largest token (SQLite).
func (t table) tokensQuoted() string { return t.relation("_tokens") }

// waitersQuoted is the name, as SQL, of the table of those who wait: "distributed_lock_waiters" beside the default table,
// "<name>_waiters" beside any other.
func (t table) waitersQuoted() string { return table{schema: t.schema, name: t.waiters()}.quoted() }

func (t table) waiters() string { return t.plural("waiters") }

// sharesQuoted is the name, as SQL, of the table of shares, made as that of those who wait.
func (t table) sharesQuoted() string { return table{schema: t.schema, name: t.shares()}.quoted() }

func (t table) shares() string { return t.plural("shares") }

func (t table) plural(what string) string {
	if t.name == DefaultTable {
		return "distributed_lock_" + what
	}
	return t.name + "_" + what
}

// migrationsQuoted is the name, as SQL, of the table where the runner keeps what it applied.
func (t table) migrationsQuoted() string { return t.relation("_migrations") }

// regclassLiteral is the string literal that ::regclass turns into the table's oid (PostgreSQL).
func (t table) regclassLiteral() string { return quoteLiteral(t.quoted()) }

// String is the table's name for people: plain where it needs no quotes, and different for different tables.
func (t table) String() string {
	plain := func(name string) string {
		if plainIdentifier.MatchString(name) {
			return name
		}
		return quoteIdentifier(name)
	}
	if t.schema == "" {
		return plain(t.name)
	}
	return plain(t.schema) + "." + plain(t.name)
}

var plainIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

func (t table) relation(suffix string) string {
	name := quoteIdentifier(t.name + suffix)
	if t.schema == "" {
		return name
	}
	return quoteIdentifier(t.schema) + "." + name
}

func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteLiteral quotes a string for PostgreSQL. With a backslash inside it takes the E form, which says the same
// under either setting of standard_conforming_strings.
func quoteLiteral(text string) string {
	text = strings.ReplaceAll(text, "'", "''")
	if strings.Contains(text, `\`) {
		return "E'" + strings.ReplaceAll(text, `\`, `\\`) + "'"
	}
	return "'" + text + "'"
}

// quoteSQLiteLiteral quotes a string for SQLite, where a backslash is nothing special.
func quoteSQLiteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func validateIdentifier(field, name string, limit int) error {
	switch {
	case name == "":
		return &locks.InvalidError{Field: field, Reason: "must not be empty"}
	case len(name) > limit:
		return &locks.InvalidError{Field: field, Reason: fmt.Sprintf("must be at most %d bytes, got %d", limit, len(name))}
	case !utf8.ValidString(name):
		return &locks.InvalidError{Field: field, Reason: "must be valid UTF-8"}
	case strings.ContainsFunc(name, unicode.IsControl):
		return &locks.InvalidError{Field: field, Reason: "must not have control characters"}
	case strings.ContainsAny(name, "'$"): // bun's pgdriver looks for strings and placeholders also inside "…"
		return &locks.InvalidError{Field: field, Reason: `must not have a "'" or "$"`}
	}
	return nil
}
