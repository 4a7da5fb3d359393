package bunstore

import "context"

// sqliteWaiters looks at the table of those who wait. Every acquire reads it, so that none works without.
func (c *checker) sqliteWaiters(ctx context.Context, q rawQuerier) error {
	name := c.table.waitersQuoted()
	kinds := map[string]string{}
	var column, kind string
	if err := rawQuery(ctx, q, `SELECT lower(name), upper(type) FROM pragma_table_xinfo(`+quoteSQLiteLiteral(c.table.waiters())+`, 'main')`,
		func() { kinds[column] = kind }, &column, &kind); err != nil {
		return err
	}
	if len(kinds) == 0 {
		c.problem("the table %s of those who wait is missing: run bunstore.Migrate, or your own migrations with those of "+
			"bunstore.RegisterMigrations", name)
		return nil
	}
	for _, want := range [][2]string{
		{"number", "INTEGER"},
		{"resource", "TEXT"},
		{"owner", "TEXT"},
		{"attempt", "TEXT"},
		{"channel", "TEXT"},
		{"since", "INTEGER"},
		{"expires_at", "INTEGER"},
	} {
		switch have, ok := kinds[want[0]]; {
		case !ok:
			c.problem("column %s (%s) of %s is missing", want[0], want[1], name)
		case have != want[1]:
			c.problem("column %s of %s is of type %s, it must be %s", want[0], name, have, want[1])
		}
	}
	found := map[string]bool{}
	var key string
	if err := rawQuery(ctx, q, `SELECT (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(l.name, 'main') ORDER BY seqno))
FROM pragma_index_list(`+quoteSQLiteLiteral(c.table.waiters())+`, 'main') AS l WHERE NOT l.partial`, func() { found[key] = true }, &key); err != nil {
		return err
	}
	for want, columns := range map[string]string{
		"resource,number": "(resource, number)", "attempt,owner,resource": "(attempt, owner, resource)",
	} {
		if !found[want] {
			c.problem("the table %s has no index on %s", name, columns)
		}
	}
	return nil
}
