package bunstore

import (
	"context"
	"strings"
)

// sqlitePart looks at a table that belongs to the lease table.
func (c *checker) sqlitePart(ctx context.Context, q rawQuerier, p part) error {
	kinds := map[string]string{}
	var column, kind string
	if err := rawQuery(ctx, q, `SELECT lower(name), upper(type) FROM pragma_table_xinfo(`+quoteSQLiteLiteral(p.table.name)+`, 'main')`,
		func() { kinds[column] = kind }, &column, &kind); err != nil {
		return err
	}
	if len(kinds) == 0 {
		c.partMissing(p)
		return nil
	}
	c.wantColumns(p, kinds, func(kind string) string {
		if kind == "text" {
			return "TEXT"
		}
		return "INTEGER"
	})
	found := map[string]bool{}
	var key string
	if err := rawQuery(ctx, q, `SELECT (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(l.name, 'main') ORDER BY seqno))
FROM pragma_index_list(`+quoteSQLiteLiteral(p.table.name)+`, 'main') AS l WHERE NOT l.partial`, func() { found[key] = true }, &key); err != nil {
		return err
	}
	for _, want := range p.keys {
		if !found[want] {
			c.problem("the table %s has no index on (%s)", p.table.quoted(), strings.ReplaceAll(want, ",", ", "))
		}
	}
	return nil
}
