package bunstore

import "github.com/uptrace/bun/migrate"

// waiterTable makes the table of those who wait. This file's name is the migration's id, see leaseTable.
var waiterTable = step{
	id:       "20261130000002",
	suffix:   "_waiters",
	comment:  "waiter_table",
	makes:    func(t table) table { return table{schema: t.schema, name: t.waiters()} },
	postgres: postgresWaiterTable,
	sqlite:   sqliteWaiterTable,
	register: func(set *migrate.Migrations, up, down migrate.MigrationFunc) error {
		return set.Register(up, down)
	},
}
