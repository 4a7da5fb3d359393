package bunstore

// This is frozen: what was released never changes, a later step alters. The statements run in one transaction, each on
// its own, and can run again on what they made.

// sqliteShareTable makes "distributed_lock_shares", one row for each share of a resource that several hold, on SQLite.
//
// lease is the token of the group's row in the lease table: a share whose group has gone is none, whatever its own end. The
// triggers keep the largest token, as those on the lease table do.
func sqliteShareTable(t table) script {
	local, tokens := table{name: t.shares()}, table{name: t.name}.tokensQuoted()
	keep := ` BEGIN
    INSERT INTO ` + tokens + ` (id, last) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM ` + tokens + `);
    UPDATE ` + tokens + ` SET last = max(last, NEW.token) WHERE id = 1;
END`
	return script{
		up: []string{
			`CREATE TABLE IF NOT EXISTS ` + t.sharesQuoted() + ` (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    resource    TEXT COLLATE BINARY NOT NULL,
    owner       TEXT COLLATE BINARY NOT NULL,
    lease       INTEGER NOT NULL,
    token       INTEGER NOT NULL UNIQUE,
    attempt     TEXT COLLATE BINARY NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    metadata    TEXT,
    UNIQUE (resource, owner)
)`,
			`CREATE TRIGGER IF NOT EXISTS ` + table{schema: t.schema, name: t.shares()}.relation(sqliteTokenInserted) +
				` AFTER INSERT ON ` + local.quoted() + keep,
			`CREATE TRIGGER IF NOT EXISTS ` + table{schema: t.schema, name: t.shares()}.relation(sqliteTokenUpdated) +
				` AFTER UPDATE OF token ON ` + local.quoted() + keep,
		},
		down: []string{
			`DROP TABLE IF EXISTS ` + t.sharesQuoted(), // with the triggers on it
		},
	}
}
