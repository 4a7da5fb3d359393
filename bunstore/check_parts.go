package bunstore

// part is a table that belongs to the lease table, as Check wants it.
type part struct {
	table   table
	of      string // whose rows it has
	columns [][2]string
	keys    []string // of unique indexes; on SQLite of any
}

// parts are the tables beside the lease table. Every acquire reads the first, every share and every purge the second.
func (t table) parts() []part {
	return []part{
		{
			table: table{schema: t.schema, name: t.waiters()}, of: "those who wait",
			columns: [][2]string{
				{"number", "bigint"},
				{"resource", "text"},
				{"owner", "text"},
				{"attempt", "text"},
				{"channel", "text"},
				{"since", "timestamp with time zone"},
				{"expires_at", "timestamp with time zone"},
			},
			keys: []string{"resource,number", "attempt,owner,resource"},
		},
		{
			table: table{schema: t.schema, name: t.shares()}, of: "shares",
			columns: [][2]string{
				{"id", "bigint"},
				{"resource", "text"},
				{"owner", "text"},
				{"lease", "bigint"},
				{"token", "bigint"},
				{"attempt", "text"},
				{"acquired_at", "timestamp with time zone"},
				{"expires_at", "timestamp with time zone"},
				{"metadata", "text"},
			},
			keys: []string{"resource,owner", "token"},
		},
	}
}

func (c *checker) partMissing(p part) {
	c.problem("the table %s of %s is missing: run bunstore.Migrate, or your own migrations with those of bunstore.RegisterMigrations",
		p.table.quoted(), p.of)
}

// wantColumns compares the columns that there are, and their types, with those of the part in the types of the dialect.
func (c *checker) wantColumns(p part, have map[string]string, dialect func(string) string) {
	for _, want := range p.columns {
		name, kind := want[0], dialect(want[1])
		switch found, ok := have[name]; {
		case !ok:
			c.problem("column %s (%s) of %s is missing", name, kind, p.table.quoted())
		case found != kind:
			c.problem("column %s of %s is of type %s, it must be %s", name, p.table.quoted(), found, kind)
		}
	}
}
