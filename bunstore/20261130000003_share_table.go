package bunstore

import "github.com/uptrace/bun/migrate"

// shareTable makes the table of shares. This file's name is the migration's id, see leaseTable.
var shareTable = step{
	id:       "20261130000003",
	suffix:   "_shares",
	comment:  "share_table",
	makes:    func(t table) table { return table{schema: t.schema, name: t.shares()} },
	postgres: postgresShareTable,
	sqlite:   sqliteShareTable,
	register: func(set *migrate.Migrations, up, down migrate.MigrationFunc) error {
		return set.Register(up, down)
	},
}
