package bunstore

// This is frozen: what was released never changes, a later step alters. The statements run in one transaction, each on
// its own, and can run again on what they made.

// sqliteLeaseTable makes "distributed_locks" and what keeps its tokens on SQLite.
//
// Instants are integers, µs since the epoch: text sorts wrong as soon as fractions or zones differ. AUTOINCREMENT never
// hands out an id again, also after a delete. TEXT compares by bytes here (BINARY), said in so many words.
//
// "_tokens" has one row, the largest token that was ever handed out: it outlives the leases, and down leaves it in place.
// An acquire computes its token from it, and the two triggers on the leases write it back in the same statement. They
// make the row again when it is gone, with two plain statements and no upsert, since a conflict clause of the statement
// that fires a trigger overrides those inside it. The third trigger puts the row back when somebody deletes it by hand.
// (Names inside a trigger cannot have a schema: they mean the trigger's own.)
func sqliteLeaseTable(t table) script {
	local := table{name: t.name}
	keep := ` BEGIN
    INSERT INTO ` + local.tokensQuoted() + ` (id, last) SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM ` + local.tokensQuoted() + `);
    UPDATE ` + local.tokensQuoted() + ` SET last = max(last, NEW.token) WHERE id = 1;
END`
	return script{
		up: []string{
			`CREATE TABLE IF NOT EXISTS ` + t.quoted() + ` (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    resource    TEXT COLLATE BINARY NOT NULL UNIQUE,
    owner       TEXT COLLATE BINARY NOT NULL,
    token       INTEGER NOT NULL UNIQUE,
    attempt     TEXT COLLATE BINARY NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    metadata    TEXT
)`,
			`CREATE TABLE IF NOT EXISTS ` + t.tokensQuoted() + ` (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
)`,
			`INSERT INTO ` + t.tokensQuoted() + ` (id, last)
SELECT 1, coalesce((SELECT max(token) FROM ` + t.quoted() + `), 0) WHERE NOT EXISTS (SELECT 1 FROM ` + t.tokensQuoted() + `)`,
			`CREATE TRIGGER IF NOT EXISTS ` + t.relation(sqliteTokenInserted) + ` AFTER INSERT ON ` + local.quoted() + keep,
			`CREATE TRIGGER IF NOT EXISTS ` + t.relation(sqliteTokenUpdated) + ` AFTER UPDATE OF token ON ` + local.quoted() + keep,
			`CREATE TRIGGER IF NOT EXISTS ` + t.relation(sqliteTokensDeleted) + ` AFTER DELETE ON ` + local.tokensQuoted() + ` BEGIN
    INSERT INTO ` + local.tokensQuoted() + ` (id, last) VALUES (1, OLD.last);
END`,
		},
		down: []string{
			`DROP TABLE IF EXISTS ` + t.quoted(), // with the triggers on it
		},
	}
}

// The triggers' names follow the table's.
const (
	sqliteTokenInserted = "_token_inserted"
	sqliteTokenUpdated  = "_token_updated"
	sqliteTokensDeleted = "_tokens_deleted"
)

// sqliteRecord is where [Migrate] keeps what it applied, in the shape of bun's own table of migrations, so that a bun
// Migrator with that table name can show it.
func sqliteRecord(t table) string {
	return `CREATE TABLE IF NOT EXISTS ` + t.migrationsQuoted() + ` (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        VARCHAR NOT NULL UNIQUE,
    group_id    INTEGER NOT NULL,
    migrated_at TIMESTAMP NOT NULL DEFAULT current_timestamp
)`
}

// sqliteExists asks for a table of the main database. SQLite tells names apart without their case.
func sqliteExists(name string) string {
	return `SELECT count(*) > 0 FROM main.sqlite_master WHERE type = 'table' AND name = ` + quoteSQLiteLiteral(name) + ` COLLATE NOCASE`
}
