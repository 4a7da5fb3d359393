package bunstore

import (
	"context"
	"strings"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/pooler"
)

// postgres checks a PostgreSQL database, all on one connection but for what needs two.
func (c *checker) postgres(ctx context.Context, q rawQuerier) error {
	c.report.Dialect = "PostgreSQL"
	for _, step := range []func(context.Context, rawQuerier) (goOn bool, err error){
		c.postgresServer, c.postgresTable, c.postgresSessions,
	} {
		goOn, err := step(ctx, q)
		switch {
		case pooler.LostStatement(err):
			c.problem("%s (%v)", lostStatementAdvice, err)
			return nil
		case strings.HasPrefix(dberror.SQLState(err), "42") && !dberror.IsSQLState(err, "42501"), dberror.IsSQLState(err, "0A000"):
			c.problem("the database does not answer as PostgreSQL 12 and later do (%v)", err)
			return nil
		case err != nil:
			return err
		case !goOn:
			return nil
		}
	}
	return nil
}

const lostStatementAdvice = "the driver's prepared statements get lost between backends: behind a pooler in transaction mode set " +
	"pgx's default_query_exec_mode to cache_describe, exec or simple_protocol"

// postgresServer looks at the server and at what a session gets by default.
func (c *checker) postgresServer(ctx context.Context, q rawQuerier) (bool, error) {
	var version int
	if err := rawQuery(ctx, q, `SELECT current_setting('server_version'), current_setting('server_version_num')::int`, nil,
		&c.report.Version, &version); err != nil {
		return false, err
	}
	if version < 120000 {
		c.problem("PostgreSQL %s is too old: 12 is the oldest that has what the statements need", c.report.Version)
		return false, nil
	}
	var replica bool
	var readOnly, fsync string
	if err := rawQuery(ctx, q, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('server_encoding'),
    current_setting('default_transaction_isolation'), current_setting('synchronous_commit'), current_setting('fsync')`, nil,
		&replica, &readOnly, &c.report.Encoding, &c.report.Isolation, &c.report.Durability, &fsync); err != nil {
		return false, err
	}
	switch {
	case replica:
		c.problem("the server is a replica: leases live on the primary; with several hosts in the DSN ask for " +
			"target_session_attrs=read-write")
	case readOnly != "off":
		c.problem("transactions are read-only by default: set default_transaction_read_only = off for this role, database or DSN")
	}
	if c.report.Encoding != "UTF8" {
		c.problem("the database's encoding is %s: resources are UTF-8, keep them in a database with ENCODING 'UTF8'", c.report.Encoding)
	}
	if c.report.Isolation != "read committed" {
		c.warn("default_transaction_isolation is %q: each change of a lease then costs an explicit READ COMMITTED transaction, "+
			"two more round trips", c.report.Isolation)
	}
	if c.report.Durability == "off" {
		c.warn("synchronous_commit is off: acquire and renew set it on for their own transactions, so that no token comes again " +
			"after a crash; what your own transactions write can be lost in one though the lease was held")
	}
	if fsync != "on" {
		c.warn("fsync is off: a crash of the machine can lose leases and repeat tokens; for tests only")
	}
	return true, c.clock(ctx, q, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
}

// postgresTable looks at the table, at its sequence and at what the role may do with them.
func (c *checker) postgresTable(ctx context.Context, q rawQuerier) (bool, error) {
	var path string
	var oid *int64
	err := rawQuery(ctx, q, `SELECT current_setting('search_path'), to_regclass(`+c.table.regclassLiteral()+`)::oid::bigint`, nil, &path, &oid)
	switch {
	case dberror.IsSQLState(err, "42501"):
		c.problem("the role may not look into the schema (%v): GRANT USAGE ON SCHEMA", err)
		return true, nil
	case err != nil:
		return false, err
	case oid == nil && c.table.schema == "":
		c.missing(" (search_path: " + path + ")")
		return true, nil
	case oid == nil:
		c.missing("")
		return true, nil
	}

	var kind, persistence, schema, denied string
	var hidden bool
	if err := rawQuery(ctx, q, `SELECT c.relkind::text, c.relpersistence::text, n.nspname::text, row_security_active(c.oid),
    coalesce((SELECT string_agg(p, ', ') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p WHERE NOT has_table_privilege(c.oid, p)), '')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = `+c.table.regclassLiteral()+`::regclass`, nil,
		&kind, &persistence, &schema, &hidden, &denied); err != nil {
		return false, err
	}
	if kind != "r" {
		c.problem("%s is not a plain table (relkind %q): a view or a partitioned table cannot hold leases", c.table.quoted(), kind)
		return true, nil
	}
	if persistence != "p" {
		c.problem("the table is temporary or unlogged (relpersistence %q): a crash would forget who holds; ALTER TABLE … SET LOGGED", persistence)
	}
	if hidden {
		c.problem("row-level security hides leases from this role: ALTER TABLE … DISABLE ROW LEVEL SECURITY, or let the role bypass it")
	}
	if denied != "" {
		c.problem("the role may not %s on the table: GRANT it", denied)
	}
	if err := c.postgresColumns(ctx, q); err != nil {
		return false, err
	}
	if err := c.postgresIndexes(ctx, q); err != nil {
		return false, err
	}
	for _, p := range c.table.parts() {
		if err := c.postgresPart(ctx, q, p); err != nil {
			return false, err
		}
	}
	return true, c.postgresSequence(ctx, q, schema, strings.Contains(denied, "SELECT"))
}

// postgresColumns compares types, nullability and collations.
func (c *checker) postgresColumns(ctx context.Context, q rawQuerier) error {
	type column struct {
		name, kind, collation                    string
		notNull, hasDefault, generated, distinct bool
	}
	found := map[string]column{}
	var col column
	if err := rawQuery(ctx, q, `SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(l.collname::text, ''), a.attnotnull,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> '', coalesce(l.collisdeterministic, true)
FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = `+c.table.regclassLiteral()+`::regclass AND a.attnum > 0 AND NOT a.attisdropped`,
		func() { found[col.name] = col },
		&col.name, &col.kind, &col.collation, &col.notNull, &col.hasDefault, &col.generated, &col.distinct); err != nil {
		return err
	}
	for _, want := range []struct {
		name, kind string
		notNull    bool
	}{
		{"id", "bigint", true},
		{"resource", "text", true},
		{"owner", "text", true},
		{"token", "bigint", true},
		{"attempt", "text", true},
		{"acquired_at", "timestamp with time zone", true},
		{"expires_at", "timestamp with time zone", true},
		{"metadata", "text", false},
	} {
		have, ok := found[want.name]
		delete(found, want.name)
		switch {
		case !ok:
			c.problem("column %s (%s) is missing", want.name, want.kind)
			continue
		case have.kind != want.kind:
			c.problem("column %s is of type %s, it must be %s", want.name, have.kind, want.kind)
			continue
		case have.notNull != want.notNull:
			c.problem("column %s: NOT NULL must be %s", want.name, map[bool]string{true: "set", false: "dropped"}[want.notNull])
		}
		switch {
		case want.name == "id" && !have.hasDefault:
			c.problem("column id must be GENERATED … AS IDENTITY")
		case want.name == "resource" && have.collation != "C" && have.collation != "POSIX":
			c.problem(`column resource has the collation %q: with any but "C" order, prefixes or even what counts as equal `+
				`differ; ALTER COLUMN resource TYPE text COLLATE "C"`, have.collation)
		case !have.distinct:
			c.problem(`column %s has the nondeterministic collation %q, by which different texts are equal: ALTER COLUMN %s TYPE text COLLATE "C"`,
				want.name, have.collation, want.name)
		}
	}
	for name, extra := range found {
		if extra.notNull && !extra.hasDefault && !extra.generated {
			c.problem("column %s is not the library's, NOT NULL and without a default, so that nothing can be inserted", name)
		}
	}
	return nil
}

// postgresIndexes looks for the unique indexes: an upsert needs the one on resource, a guard needs token to be a key
// column, which only a plain, immediate, whole and valid unique index makes it.
func (c *checker) postgresIndexes(ctx context.Context, q rawQuerier) error {
	good := map[string]bool{}
	var column string
	if err := rawQuery(ctx, q, `SELECT a.attname::text FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = `+c.table.regclassLiteral()+`::regclass AND i.indnkeyatts = 1 AND i.indisunique AND i.indimmediate AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indcollation[0] = a.attcollation`, func() { good[column] = true }, &column); err != nil {
		return err
	}
	why := map[string]string{
		"id":       "the row's key",
		"resource": "without it two owners can hold one resource",
		"token":    "without it a guard does not keep a takeover out",
	}
	for _, name := range []string{"id", "resource", "token"} {
		if !good[name] {
			c.problem("column %s has no plain unique index (valid, not partial, not deferrable, on that column alone): %s; "+
				"ALTER TABLE … ADD UNIQUE (%s)", name, why[name], name)
		}
	}
	return nil
}
