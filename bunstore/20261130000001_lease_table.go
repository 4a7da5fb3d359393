package bunstore

import "github.com/uptrace/bun/migrate"

// leaseTable makes the table of leases. This file's name is the migration's id, as bun has it: a set's Register takes
// the id from the file that calls it, and only what was registered so runs the host's BeforeMigration and
// AfterMigration hooks.
var leaseTable = step{
	id:       "20261130000001",
	comment:  "lease_table",
	makes:    func(t table) table { return t },
	postgres: postgresLeaseTable,
	sqlite:   sqliteLeaseTable,
	register: func(set *migrate.Migrations, up, down migrate.MigrationFunc) error {
		return set.Register(up, down)
	},
}
