package bunstore

// This is frozen: what was released never changes, a later step alters. The statements run in one transaction, each on
// its own, and can run again on what they made.

// sqliteWaiterTable makes "distributed_lock_waiters", the tickets of those who wait, on SQLite.
//
// The index on resource and number is how every statement finds the first ticket of a resource, the unique one how it finds
// that of an attempt. expires_at and channel are in none, so that keeping a ticket changes one page. AUTOINCREMENT
// never hands out a number again, and since there is one writer the numbers are in the order of commits.
func sqliteWaiterTable(t table) script {
	return script{
		up: []string{
			`CREATE TABLE IF NOT EXISTS ` + t.waitersQuoted() + ` (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    resource   TEXT COLLATE BINARY NOT NULL,
    owner      TEXT COLLATE BINARY NOT NULL,
    attempt    TEXT COLLATE BINARY NOT NULL,
    channel    TEXT COLLATE BINARY NOT NULL,
    since      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (attempt, owner, resource)
)`,
			`CREATE INDEX IF NOT EXISTS ` + table{schema: t.schema, name: t.waiters() + sqliteWaitersInOrder}.quoted() +
				` ON ` + table{name: t.waiters()}.quoted() + ` (resource, number)`,
		},
		down: []string{
			`DROP TABLE IF EXISTS ` + t.waitersQuoted(), // with its indexes
		},
	}
}

// sqliteWaitersInOrder follows the table's name in that of its index.
const sqliteWaitersInOrder = "_in_order"
