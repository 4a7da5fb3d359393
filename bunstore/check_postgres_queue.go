package bunstore

import (
	"context"
	"strings"
)

// postgresWaiters looks at the table of those who wait. Every acquire reads it, so that none works without.
func (c *checker) postgresWaiters(ctx context.Context, q rawQuerier) error {
	name := c.table.waitersQuoted()
	var found bool
	if err := rawQuery(ctx, q, postgresExists(name), nil, &found); err != nil {
		return err
	}
	if !found {
		c.problem("the table %s of those who wait is missing: run bunstore.Migrate, or your own migrations with those of "+
			"bunstore.RegisterMigrations", name)
		return nil
	}
	regclass := quoteLiteral(name) + `::regclass`
	var denied string
	var hidden bool
	if err := rawQuery(ctx, q, `SELECT row_security_active(`+regclass+`), coalesce((SELECT string_agg(p, ', ')
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p WHERE NOT has_table_privilege(`+regclass+`, p)), '')`, nil,
		&hidden, &denied); err != nil {
		return err
	}
	if hidden {
		c.problem("row-level security hides tickets from this role: ALTER TABLE %s DISABLE ROW LEVEL SECURITY, or let the role bypass it", name)
	}
	if denied != "" {
		c.problem("the role may not %s on the table %s: GRANT it", denied, name)
	}
	kinds := map[string]string{}
	var column, kind string
	if err := rawQuery(ctx, q, `SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = `+regclass+` AND attnum > 0 AND NOT attisdropped`, func() { kinds[column] = kind }, &column, &kind); err != nil {
		return err
	}
	for _, want := range [][2]string{
		{"number", "bigint"},
		{"resource", "text"},
		{"owner", "text"},
		{"attempt", "text"},
		{"channel", "text"},
		{"since", "timestamp with time zone"},
		{"expires_at", "timestamp with time zone"},
	} {
		switch have, ok := kinds[want[0]]; {
		case !ok:
			c.problem("column %s (%s) of %s is missing", want[0], want[1], name)
		case have != want[1]:
			c.problem("column %s of %s is of type %s, it must be %s", want[0], name, have, want[1])
		}
	}
	keys := map[string]bool{}
	var key string
	if err := rawQuery(ctx, q, `SELECT (SELECT string_agg(a.attname::text, ',' ORDER BY k.n)
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum)
FROM pg_index i WHERE i.indrelid = `+regclass+` AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
    AND i.indexprs IS NULL`, func() { keys[key] = true }, &key); err != nil {
		return err
	}
	for _, want := range []string{"resource,number", "attempt,owner,resource"} {
		if !keys[want] {
			c.problem("the table %s has no plain unique index on (%s)", name, strings.ReplaceAll(want, ",", ", "))
		}
	}
	return nil
}
