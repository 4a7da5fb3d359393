package bunstore

// The statements on the tickets of those who wait, see sqliteWaiterTable. They do without JSON, which is built in only from
// 3.38 on: where a statement is about many tickets, their {numbers} are placeholders.

// sqliteFirst is the first live ticket of the resource ?1: whose turn it is. It goes along the index and stops at the first
// one, however many there are. (CROSS JOIN, below, is how SQLite is told the order of a join.)
const sqliteFirst = `FROM {waiters} WHERE resource = ?1 AND expires_at > {now} ORDER BY number LIMIT 1`

// sqliteHead: ?1 resource. That ticket in the columns of a lease: with its number for the id, when it was drawn for
// acquired_at, and without a token.
const sqliteHead = `
SELECT attempt, number, resource, owner, 0, since, expires_at, expires_at - {now}, NULL ` + sqliteFirst

// sqliteNext: ?1 resource. Whose turn it is, if it is free, or shared by those whom it may join.
const sqliteNext = `
SELECT number FROM (SELECT number ` + sqliteFirst + `)
WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE resource = ?1 AND owner <> '' AND expires_at > {now})`

// sqliteAwaited: ?1 resource. Whether somebody may wait.
const sqliteAwaited = `SELECT EXISTS (SELECT 1 FROM {waiters} WHERE resource = ?1)`

// sqliteGlance: ?1 resource. What an acquire asks first, and refuses on: the lease's row, live or ended, and, as rows
// without a token, that there are tickets, live or not. An upsert would take the file's write lock even to be refused, and
// wait for whoever writes; a read waits for nobody. Whose turn it is, is asked only where there is a ticket: that would be
// most of the statement's time. Only two rows are read of it: there is one for each ticket.
const sqliteGlance = sqliteRow + `
UNION ALL SELECT '', 0, resource, '', 0, 0, 0, 0, NULL FROM {waiters} WHERE resource = ?1`

// sqliteGlances: as sqliteGlance, for all of the {resources}, which are numbered placeholders; {each} has them one to a row,
// so that each has one row for its tickets.
const sqliteGlances = `
SELECT attempt, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata
FROM {table} WHERE resource IN ({resources})
UNION ALL SELECT '', 0, column1, '', 0, 0, 0, 0, NULL FROM (VALUES {each})
WHERE EXISTS (SELECT 1 FROM {waiters} WHERE resource = column1)`

// sqliteAcquireQueued: as sqliteAcquire, ?6 whether to barge. It is for a resource that has tickets: the first live one gets
// it, and whoever holds it already gets it in place. sqliteServed follows, in the same step. (Without a WHERE, SQLite
// would take the ON that follows for that of a join.)
const sqliteAcquireQueued = `
INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
SELECT ?1, ` + sqliteGrant + `
WHERE ?6 OR EXISTS (SELECT 1 FROM {table} WHERE resource = ?1 AND owner = ?2 AND expires_at > {now})
	OR coalesce((SELECT owner = ?2 AND attempt = ?5 ` + sqliteFirst + `), true)` + sqliteTakeOver

// sqliteServed: ?1 resource, ?2 owner, ?3 attempt. It takes the attempt's ticket out, wherever it stands in the queue, and
// dead ones at its head, so that nobody goes past them again and again.
const sqliteServed = `
DELETE FROM {waiters} WHERE number IN (
	SELECT number FROM (SELECT number, expires_at FROM {waiters} WHERE resource = ?1 ORDER BY number LIMIT 100)
	WHERE expires_at <= {now}
	UNION ALL SELECT number FROM {waiters} WHERE resource = ?1 AND owner = ?2 AND attempt = ?3)
RETURNING number`

// sqliteDequeue: ?1 resource, ?2 owner, ?3 attempt. Answers: whether it was before all others, or no row. SQLite looks at
// what RETURNING asks when the row is gone.
const sqliteDequeue = `
DELETE FROM {waiters} WHERE resource = ?1 AND owner = ?2 AND attempt = ?3
RETURNING number < coalesce((SELECT number ` + sqliteFirst + `), 0)`

// sqlitePlace: ?1 resource, ?2 owner, ?3 attempt, ?4 most. Answers: how many wait, counted to most, and the number, since
// and expires_at of the attempt's live ticket, or NULL.
const sqlitePlace = `
SELECT (SELECT count(*) FROM (SELECT 1 FROM {waiters} WHERE resource = ?1 AND expires_at > {now} LIMIT ?4)),
	number, since, expires_at
FROM (SELECT 1) LEFT JOIN {waiters} ON resource = ?1 AND owner = ?2 AND attempt = ?3 AND expires_at > {now}`

// sqliteEnqueue: ?1 resource, ?2 owner, ?3 attempt, ?4 channel, ?5 ticket TTL in µs. sqliteServed has taken out a dead ticket
// of the attempt before.
const sqliteEnqueue = `
INSERT INTO {waiters} (resource, owner, attempt, channel, since, expires_at)
VALUES (?1, ?2, ?3, ?4, {now}, {now} + ?5)
RETURNING number, since, expires_at`

// sqliteKeep: ?1 ticket TTL in µs, ?2 channel, then the numbers. Answers: those that are live.
const sqliteKeep = `
UPDATE {waiters} SET expires_at = {now} + ?1, channel = ?2 WHERE number IN ({numbers}) AND expires_at > {now}
RETURNING number`

// sqliteClear: the numbers of live tickets. It takes out the dead ones that are in front of the first live ticket of their
// resources.
const sqliteClear = `
DELETE FROM {waiters} WHERE number IN (
	SELECT dead.number FROM (SELECT DISTINCT resource FROM {waiters} WHERE number IN ({numbers})) AS mine
	CROSS JOIN {waiters} AS dead ON dead.resource = mine.resource AND dead.number < (SELECT number FROM {waiters}
		WHERE resource = mine.resource AND expires_at > {now} ORDER BY number LIMIT 1)
	LIMIT 10000)
RETURNING number`

// sqliteLook: the numbers. Answers: for each that is live its number, whether it is the first one and the resource is free,
// and in µs how long the first one's ticket or, where it is the first, the lease lasts, 0 for none. It is a read.
const sqliteLook = `
SELECT w.number, head.number = w.number AND l.expires_at IS NULL,
	coalesce(CASE WHEN head.number = w.number THEN l.expires_at ELSE head.expires_at END - {now}, 0)
FROM {waiters} AS w
CROSS JOIN {waiters} AS head ON head.number = (SELECT number FROM {waiters}
	WHERE resource = w.resource AND expires_at > {now} ORDER BY number LIMIT 1)
LEFT JOIN {table} AS l ON l.resource = w.resource AND l.expires_at > {now}
WHERE w.number IN ({numbers}) AND w.expires_at > {now}`

// sqliteWaiters: ?1 resource, ?2 rows. Answers: how many wait and the first of them, at least one row.
const sqliteWaiters = `
SELECT (SELECT count(*) FROM {waiters} WHERE resource = ?1 AND expires_at > {now}), number, owner, since, expires_at
FROM (SELECT 1) LEFT JOIN (SELECT number, owner, since, expires_at FROM {waiters}
	WHERE resource = ?1 AND expires_at > {now} ORDER BY number LIMIT ?2) ON true
ORDER BY number`

// sqlitePurgeTickets: ?1 rows.
const sqlitePurgeTickets = `
DELETE FROM {waiters} WHERE number IN (SELECT number FROM {waiters} WHERE expires_at <= {now} LIMIT ?1)
RETURNING 1`
