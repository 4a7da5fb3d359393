package bunstore

import (
	"context"
	"strings"
)

// postgresPart looks at a table that belongs to the lease table.
func (c *checker) postgresPart(ctx context.Context, q rawQuerier, p part) error {
	name := p.table.quoted()
	var found bool
	if err := rawQuery(ctx, q, postgresExists(name), nil, &found); err != nil {
		return err
	}
	if !found {
		c.partMissing(p)
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
		c.problem("row-level security hides rows from this role: ALTER TABLE %s DISABLE ROW LEVEL SECURITY, or let the role bypass it", name)
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
	c.wantColumns(p, kinds, func(kind string) string { return kind })
	keys := map[string]bool{}
	var key string
	if err := rawQuery(ctx, q, `SELECT (SELECT string_agg(a.attname::text, ',' ORDER BY k.n)
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n) JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum)
FROM pg_index i WHERE i.indrelid = `+regclass+` AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
    AND i.indexprs IS NULL`, func() { keys[key] = true }, &key); err != nil {
		return err
	}
	for _, want := range p.keys {
		if !keys[want] {
			c.problem("the table %s has no plain unique index on (%s)", name, strings.ReplaceAll(want, ",", ", "))
		}
	}
	return nil
}
