package bunstore

import (
	"context"
	"database/sql"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// maxToken is the largest token, which every JSON reader keeps exactly.
const maxToken = 1<<53 - 1

// postgresSequence checks that the tokens can only grow.
func (c *checker) postgresSequence(ctx context.Context, q rawQuerier, schema string, noSelect bool) error {
	literal := quoteLiteral(c.table.sequenceQuoted())
	var found bool
	var in, kind, valueType, owned string
	var start, increment, most, cache int64
	var cycle, usable, visible, readable bool
	var last sql.NullInt64
	// A sequence is owned by a column through an automatic dependency ('a') or, for an identity column, an internal one.
	if err := rawQuery(ctx, q, `SELECT n.nspname::text, c.relkind::text, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmax, s.seqcache, s.seqcycle,
    coalesce((SELECT d.refobjid::regclass::text FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
        AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i') LIMIT 1), ''),
    has_sequence_privilege(c.oid, 'USAGE, UPDATE'), has_sequence_privilege(c.oid, 'USAGE, SELECT'), has_sequence_privilege(c.oid, 'SELECT'),
    CASE WHEN has_sequence_privilege(c.oid, 'USAGE, SELECT') THEN pg_sequence_last_value(c.oid) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_sequence s ON s.seqrelid = c.oid WHERE c.oid = to_regclass(`+literal+`)`,
		func() { found = true },
		&in, &kind, &valueType, &start, &increment, &most, &cache, &cycle, &owned, &usable, &visible, &readable, &last); err != nil {
		return err
	}
	name := c.table.sequenceQuoted()
	if !found {
		c.problem("the sequence %s is missing: with the table still there, CREATE SEQUENCE %s MAXVALUE 9007199254740991 "+
			"START WITH a number larger than every token that was ever handed out", name, name)
		return nil
	}
	if in != schema {
		c.problem("the sequence %s is found in the schema %q, the table in %q: name the schema with WithSchema", name, in, schema)
	}
	if cycle {
		c.problem("the sequence %s begins anew at its end: ALTER SEQUENCE %s NO CYCLE", name, name)
	}
	if cache != 1 {
		c.problem("the sequence %s has CACHE %d, so that a later grant can get a smaller token: ALTER SEQUENCE %s CACHE 1", name, cache, name)
	}
	if increment < 1 {
		c.problem("the sequence %s counts down: ALTER SEQUENCE %s INCREMENT BY 1", name, name)
	}
	if valueType != "bigint" {
		c.problem("the sequence %s is of type %s: ALTER SEQUENCE %s AS bigint MAXVALUE 9007199254740991", name, valueType, name)
	}
	if most > maxToken {
		c.warn("the sequence %s has no end at 2^53 - 1, which is the largest token: ALTER SEQUENCE %s MAXVALUE %d", name, name, int64(maxToken))
	}
	if owned != "" {
		c.problem("the sequence %s is owned by a column of %s, so that TRUNCATE … RESTART IDENTITY makes tokens come again: "+
			"ALTER SEQUENCE %s OWNED BY NONE", name, owned, name)
	}
	if !usable {
		c.problem("the role may not use the sequence %s: GRANT USAGE ON SEQUENCE %s", name, name)
	}
	if noSelect || !visible {
		c.notChecked("whether the next token is larger than all there are: the role may not read them")
		return nil
	}
	return c.postgresNextToken(ctx, q, readable, start, increment, most, last)
}

// postgresNextToken compares the sequence with the table, which it is behind when one of them was restored alone. Only a
// role that may SELECT from the sequence sees a setval that nothing was drawn after; last is NULL then.
func (c *checker) postgresNextToken(ctx context.Context, q rawQuerier, readable bool, start, increment, most int64, last sql.NullInt64) error {
	next := start
	if last.Valid {
		next = last.Int64 + increment
	}
	var largest int64
	// The table is read as of the statement's start, the sequence later: what is drawn meanwhile only makes next larger.
	from, value, called := "(SELECT 1) AS one", "0", "false"
	if readable {
		from, value, called = c.table.sequenceQuoted(), "last_value", "is_called"
	}
	var lastValue int64
	var isCalled bool
	err := rawQuery(ctx, q, `SELECT `+value+`::bigint, `+called+`, coalesce((SELECT max(token) FROM `+c.table.quoted()+`), 0) FROM `+from, nil,
		&lastValue, &isCalled, &largest)
	switch {
	case dberror.IsSQLState(err, "42703"): // no column token, which is a problem already
		return nil
	case err != nil:
		return err
	case readable && isCalled:
		next = lastValue + increment
	case readable:
		next = lastValue
	}
	name := c.table.sequenceQuoted()
	switch {
	case next <= largest:
		c.problem("the next token would be %d, but a lease has %d: SELECT setval(%s, a number that no token has reached)",
			next, largest, quoteLiteral(name))
	case next > most || next > maxToken:
		c.problem("the sequence %s is at its end: no token is left", name)
	}
	return nil
}
