package bunstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
)

// sqlite checks an SQLite database.
func (c *checker) sqlite(ctx context.Context, q rawQuerier) error {
	c.report.Dialect = "SQLite"
	if err := rawQuery(ctx, q, `SELECT sqlite_version()`, nil, &c.report.Version); err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(c.report.Version, "%d.%d", &major, &minor); err != nil || major < 3 || major == 3 && minor < 35 {
		c.problem("SQLite %s is too old: 3.35 is the oldest that has RETURNING", c.report.Version)
		return nil
	}
	if err := c.sqliteFile(ctx, q); err != nil {
		return err
	}
	return c.sqliteTable(ctx, q)
}

// sqliteFile looks at the database as a whole and at the connection's settings.
func (c *checker) sqliteFile(ctx context.Context, q rawQuerier) error {
	var journal, file string
	var synchronous int
	var queryOnly bool
	for _, setting := range []struct {
		statement string
		into      any
	}{
		{`PRAGMA main.encoding`, &c.report.Encoding},
		{`PRAGMA main.journal_mode`, &journal},
		{`PRAGMA main.synchronous`, &synchronous},
		{`PRAGMA query_only`, &queryOnly},
		{`SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'`, &file},
	} {
		if err := rawQuery(ctx, q, setting.statement, nil, setting.into); err != nil {
			return err
		}
	}
	mode := map[int]string{0: "off", 1: "normal", 2: "full", 3: "extra"}[synchronous]
	c.report.Durability = journal + ", " + mode
	if c.report.Encoding != "UTF-8" {
		c.problem("the database's encoding is %s: names would be ordered by other bytes; make the file with PRAGMA encoding = 'UTF-8'", c.report.Encoding)
	}
	if queryOnly {
		c.problem("the connections are read-only (PRAGMA query_only): leases are written")
	}
	if file != "" && journal == "off" || journal == "memory" && file != "" {
		c.warn("journal_mode is %s: a crash while a lease is written can damage the file; take WAL", journal)
	}
	if file != "" && synchronous == 0 {
		c.warn("synchronous is off: a crash of the machine can lose leases and repeat tokens; take NORMAL with WAL, or FULL")
	}
	if err := c.clock(ctx, q, `SELECT `+sqliteNow); err != nil {
		return err
	}
	if file == "" {
		return c.sqliteMemory(ctx, q)
	}
	return nil
}

// sqliteMemory looks whether the pool's connections share the database in memory, or have each their own.
func (c *checker) sqliteMemory(ctx context.Context, q rawQuerier) error {
	b, ok := c.second(ctx)
	if !ok {
		return ctx.Err()
	}
	defer func() { _ = b.Close() }() // back into the pool
	var here, there bool
	if err := rawQuery(ctx, q, sqliteExists(c.table.name), nil, &here); err != nil {
		return err
	}
	if err := rawQuery(ctx, b, sqliteExists(c.table.name), nil, &there); err != nil {
		return err
	}
	if here != there {
		c.problem("the database is in memory and each connection has its own: call SetMaxOpenConns(1), or use a file")
	}
	return nil
}

var autoincrement = regexp.MustCompile(`(?i)\bautoincrement\b`)

// sqliteTable looks at the table and at what keeps its tokens.
func (c *checker) sqliteTable(ctx context.Context, q rawQuerier) error {
	tables := map[string]string{}
	triggers := map[string]string{}
	var kind, name, on, text string
	if err := rawQuery(ctx, q, `SELECT type, lower(name), lower(tbl_name), coalesce(sql, '') FROM main.sqlite_master WHERE type IN ('table', 'trigger')`,
		func() {
			if kind == "table" {
				tables[name] = text
			} else {
				triggers[name] = on
			}
		}, &kind, &name, &on, &text); err != nil {
		return err
	}
	leases := asciiLower(c.table.name)
	made, ok := tables[leases]
	if !ok {
		c.missing("")
		return nil
	}
	if err := c.sqliteColumns(ctx, q, autoincrement.MatchString(made)); err != nil {
		return err
	}
	if err := c.sqliteIndexes(ctx, q); err != nil {
		return err
	}
	for _, p := range c.table.parts() {
		if err := c.sqlitePart(ctx, q, p); err != nil {
			return err
		}
	}
	if _, ok := tables[leases+"_tokens"]; !ok {
		c.problem("the table %s is missing, tokens would come again: run the migrations, then set its row's last to a number "+
			"that no token has reached", c.table.tokensQuoted())
		return nil
	}
	shares := table{schema: c.table.schema, name: c.table.shares()}
	for _, want := range []struct {
		of     table
		suffix string
		on     string
	}{
		{c.table, sqliteTokenInserted, leases},
		{c.table, sqliteTokenUpdated, leases},
		{c.table, sqliteTokensDeleted, leases + "_tokens"},
		{shares, sqliteTokenInserted, asciiLower(shares.name)},
		{shares, sqliteTokenUpdated, asciiLower(shares.name)},
	} {
		if _, ok := tables[want.on]; ok && triggers[asciiLower(want.of.name)+want.suffix] != want.on {
			c.problem("the trigger %s is missing, tokens could come again: run the migrations' up again (it adds what is missing)",
				want.of.relation(want.suffix))
		}
	}
	return c.sqliteTokens(ctx, q)
}

// sqliteColumns compares types and nullability.
func (c *checker) sqliteColumns(ctx context.Context, q rawQuerier, autoincrement bool) error {
	type column struct {
		name, kind          string
		notNull, hasDefault bool
		key, hidden         int
	}
	found := map[string]column{}
	var col column
	if err := rawQuery(ctx, q, `SELECT lower(name), upper(type), "notnull", dflt_value IS NOT NULL, pk, hidden FROM pragma_table_xinfo(`+
		quoteSQLiteLiteral(c.table.name)+`, 'main')`, func() { found[col.name] = col },
		&col.name, &col.kind, &col.notNull, &col.hasDefault, &col.key, &col.hidden); err != nil {
		return err
	}
	for _, want := range []struct {
		name, kind string
		notNull    bool
	}{
		{"id", "INTEGER", false},
		{"resource", "TEXT", true},
		{"owner", "TEXT", true},
		{"token", "INTEGER", true},
		{"attempt", "TEXT", true},
		{"acquired_at", "INTEGER", true},
		{"expires_at", "INTEGER", true},
		{"metadata", "TEXT", false},
	} {
		have, ok := found[want.name]
		delete(found, want.name)
		switch {
		case !ok:
			c.problem("column %s (%s) is missing", want.name, want.kind)
		case have.kind != want.kind:
			c.problem("column %s is of type %s, it must be %s", want.name, have.kind, want.kind)
		case want.name == "id" && (have.key != 1 || !autoincrement):
			c.problem("column id must be INTEGER PRIMARY KEY AUTOINCREMENT, so that no id comes again")
		case want.name != "id" && have.notNull != want.notNull:
			c.problem("column %s: NOT NULL must be %s", want.name, map[bool]string{true: "set", false: "dropped"}[want.notNull])
		}
	}
	for name, extra := range found {
		if extra.notNull && !extra.hasDefault && extra.hidden == 0 {
			c.problem("column %s is not the library's, NOT NULL and without a default, so that nothing can be inserted", name)
		}
	}
	return nil
}

// sqliteIndexes looks for the unique indexes, each on its one column, whole, and by bytes.
func (c *checker) sqliteIndexes(ctx context.Context, q rawQuerier) error {
	good := map[string]bool{}
	var column, collation string
	if err := rawQuery(ctx, q, `SELECT lower(max(x.name)), max(x.coll) FROM pragma_index_list(`+quoteSQLiteLiteral(c.table.name)+`, 'main') AS l,
    pragma_index_xinfo(l.name, 'main') AS x WHERE l."unique" AND NOT l.partial AND x.key GROUP BY l.name HAVING count(*) = 1 AND max(x.name) IS NOT NULL`,
		func() {
			if collation == "BINARY" {
				good[column] = true
			} else {
				c.problem("column %s is compared with COLLATE %s: it must be BINARY, or different resources are one", column, collation)
			}
		}, &column, &collation); err != nil {
		return err
	}
	for name, why := range map[string]string{
		"resource": "two owners could hold one resource",
		"token":    "a token could come again",
	} {
		if !good[name] {
			c.problem("column %s has no unique index (not partial, on that column alone, by bytes): %s", name, why)
		}
	}
	return nil
}

// sqliteTokens looks at the row that keeps the largest token, and whether it can be written.
func (c *checker) sqliteTokens(ctx context.Context, q rawQuerier) error {
	var rows, last, largest int64
	err := rawQuery(ctx, q, `SELECT (SELECT count(*) FROM `+c.table.tokensQuoted()+`), coalesce((SELECT max(last) FROM `+c.table.tokensQuoted()+`), 0),
    coalesce((SELECT max(token) FROM `+c.table.quoted()+`), 0)`, nil, &rows, &last, &largest)
	switch {
	case err != nil && strings.Contains(err.Error(), "no such column"): // a problem already
		return nil
	case err != nil:
		return err
	case rows == 0:
		c.problem("%s has lost its row, and with it the largest token that was ever handed out: INSERT INTO %s VALUES (1, a number "+
			"that no token has reached)", c.table.tokensQuoted(), c.table.tokensQuoted())
	case last < largest:
		c.problem("%s is at %d, but a lease has the token %d: UPDATE %s SET last = a number that no token has reached",
			c.table.tokensQuoted(), last, largest, c.table.tokensQuoted())
	case last >= maxToken:
		c.problem("%s is at the largest token there is", c.table.tokensQuoted())
	}
	// Nothing is changed, but SQLite takes the write lock for it, which it refuses on a file that it cannot write.
	err = rawExec(ctx, q, `UPDATE `+c.table.tokensQuoted()+` SET last = last WHERE false`)
	switch {
	case dberror.SQLiteCode(err)&0xff == dberror.SQLiteReadOnly:
		if !strings.Contains(strings.Join(c.problems, ""), "query_only") {
			c.problem("the database cannot be written (%v): leases are; look at the file's and its directory's permissions and at mode=ro", err)
		}
		return nil
	case dberror.IsSQLiteBusy(err):
		c.notChecked("whether the file can be written: somebody else is writing")
		return nil
	}
	return err
}

// asciiLower is SQLite's lower, which leaves letters outside of ASCII alone.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
