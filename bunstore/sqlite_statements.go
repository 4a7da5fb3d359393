package bunstore

import "strings"

// sqliteStatements is the SQL for SQLite, 3.35 and later (RETURNING). Instants are integers, microseconds since the
// epoch, of SQLite's own clock, which has milliseconds. The first column of an answer is the attempt. The texts are
// short because SQLite's drivers parse them at every call.
type sqliteStatements struct {
	glance, glances, acquire, renew, release, releaseAttempt, row, get, list, purge, forceRelease, guard string

	// Of those who wait.
	head, acquireQueued, served, next, awaited, place, enqueue, dequeue, keep, clear, look, waiters, purgeTickets string

	// On shares.
	shareStood, shareBegin, shareGrant, shareEnd, shareOver, shareRow, shareRenew, shareRelease, shareReleaseAttempt string
	shareReleaseToken, shareGuard, holders, shareLook, purgeShares                                                   string
}

// sqliteNow is the clock. It stands still within one statement, which is what atomic means here: a statement that
// changes something takes the write lock before it looks at the clock. unixepoch('subsec') would need 3.42.
const sqliteNow = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`

func newSQLiteStatements(t table) sqliteStatements {
	text := strings.NewReplacer("{table}", t.quoted(), "{tokens}", t.tokensQuoted(), "{waiters}", t.waitersQuoted(),
		"{shares}", t.sharesQuoted(), "{now}", sqliteNow)
	return sqliteStatements{
		glance:         text.Replace(sqliteGlance),
		glances:        text.Replace(sqliteGlances),
		acquire:        text.Replace(sqliteAcquire),
		renew:          text.Replace(sqliteRenew),
		release:        text.Replace(sqliteRelease),
		releaseAttempt: text.Replace(sqliteReleaseAttempt),
		row:            text.Replace(sqliteRow),
		get:            text.Replace(sqliteGet),
		list:           text.Replace(sqliteList),
		purge:          text.Replace(sqlitePurge),
		forceRelease:   text.Replace(sqliteForceRelease),
		guard:          text.Replace(sqliteGuard),

		head:          text.Replace(sqliteHead),
		acquireQueued: text.Replace(sqliteAcquireQueued),
		served:        text.Replace(sqliteServed),
		next:          text.Replace(sqliteNext),
		awaited:       text.Replace(sqliteAwaited),
		place:         text.Replace(sqlitePlace),
		enqueue:       text.Replace(sqliteEnqueue),
		dequeue:       text.Replace(sqliteDequeue),
		keep:          text.Replace(sqliteKeep),
		clear:         text.Replace(sqliteClear),
		look:          text.Replace(sqliteLook),
		waiters:       text.Replace(sqliteWaiters),
		purgeTickets:  text.Replace(sqlitePurgeTickets),

		shareStood:          text.Replace(sqliteShareStood),
		shareBegin:          text.Replace(sqliteShareBegin),
		shareGrant:          text.Replace(sqliteShareGrant),
		shareEnd:            text.Replace(sqliteShareEnd),
		shareOver:           text.Replace(sqliteShareOver),
		shareRow:            text.Replace(sqliteShareRow),
		shareRenew:          text.Replace(sqliteShareRenew),
		shareRelease:        text.Replace(sqliteShareRelease),
		shareReleaseAttempt: text.Replace(sqliteShareReleaseAttempt),
		shareReleaseToken:   text.Replace(sqliteShareReleaseToken),
		shareGuard:          text.Replace(sqliteShareGuard),
		holders:             text.Replace(sqliteHolders),
		shareLook:           text.Replace(sqliteShareLook),
		purgeShares:         text.Replace(sqlitePurgeShares),
	}
}

// sqliteAcquire: ?1 resource, ?2 owner, ?3 TTL in µs, ?4 metadata, ?5 attempt. It comes after sqliteGlance found nothing
// that settles the matter, and no ticket, and asks once more, now with the write lock, which orders all grants. Where there
// is a ticket by then, the resource is NULL, which the table refuses: sqliteAcquireQueued is for that, and takes out the
// attempt's own. (A SELECT with a condition would do, too, and take 20 µs longer.) No row is the answer "somebody was
// faster".
const sqliteAcquire = `
INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
VALUES (CASE WHEN NOT EXISTS (SELECT 1 FROM {waiters} WHERE resource = ?1) THEN ?1 END, ` + sqliteGrant + `)` + sqliteTakeOver

// sqliteGrant is the values of a grant but for the resource. The token follows the largest there ever was, which the table's
// triggers keep in a row of its own; were that row deleted by hand, it follows the largest in the table.
const sqliteGrant = `?2, ` + sqliteToken + `, ?5, {now}, {now} + ?3, ?4`

const sqliteToken = `max(coalesce((SELECT max(last) FROM {tokens}), 0), coalesce((SELECT max(token) FROM {table}), 0)) + 1`

// sqliteTakeOver: an ended row, or one of the same owner, is taken over in place and keeps its id.
const sqliteTakeOver = `
ON CONFLICT (resource) DO UPDATE SET
	owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, acquired_at = excluded.acquired_at,
	expires_at = excluded.expires_at, metadata = excluded.metadata
WHERE l.expires_at <= excluded.acquired_at OR (l.owner = excluded.owner AND l.attempt <> excluded.attempt)
RETURNING attempt, id, resource, owner, token, acquired_at, expires_at, ?3, metadata`

// sqliteRenew: ?1 resource, ?2 owner, ?3 token (-1: any), ?4 TTL in µs. No row is a refusal; sqliteRow tells why.
const sqliteRenew = `
UPDATE {table} SET expires_at = {now} + ?4
WHERE resource = ?1 AND owner = ?2 AND (token = ?3 OR ?3 = -1) AND expires_at > {now}
RETURNING attempt, id, resource, owner, token, acquired_at, expires_at, ?4, metadata`

// sqliteReleased is the word for a release: "awaited" where somebody may wait.
const sqliteReleased = `CASE WHEN EXISTS (SELECT 1 FROM {waiters} WHERE resource = ?1) THEN 'awaited' ELSE 'released' END`

// sqliteRelease: ?1 resource, ?2 owner, ?3 token (-1: any). No row is a refusal; sqliteRow tells why. What is released has no
// time left.
const sqliteRelease = `
DELETE FROM {table} WHERE resource = ?1 AND owner = ?2 AND (token = ?3 OR ?3 = -1) AND expires_at > {now}
RETURNING ` + sqliteReleased + `, id, resource, owner, token, acquired_at, expires_at, 0, metadata`

// sqliteReleaseAttempt: ?1 resource, ?2 owner, ?3 attempt. As sqliteRelease, for a caller that knows no token.
const sqliteReleaseAttempt = `
DELETE FROM {table} WHERE resource = ?1 AND owner = ?2 AND attempt = ?3 AND expires_at > {now}
RETURNING ` + sqliteReleased + `, id, resource, owner, token, acquired_at, expires_at, 0, metadata`

// sqliteRow: ?1 resource. The row as it stands, live or ended.
const sqliteRow = `
SELECT attempt, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata
FROM {table} WHERE resource = ?1`

// sqliteGet: ?1 resource.
const sqliteGet = sqliteRow + ` AND expires_at > {now}`

// sqliteList: ?1 first resource of the prefix, ?2 the resource that follows the prefix's last or empty for no end,
// ?3 the resource after which the page begins, ?4 owner or empty for any, ?5 rows. TEXT compares by bytes.
const sqliteList = `
SELECT attempt, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata
FROM {table}
WHERE resource >= ?1 AND (?2 = '' OR resource < ?2) AND resource > ?3 AND (?4 = '' OR owner = ?4) AND expires_at > {now}
ORDER BY resource LIMIT ?5`

// sqlitePurge: ?1 rows. There is one writer, so that nothing changes between the choice and the deletion.
const sqlitePurge = `
DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE expires_at <= {now} LIMIT ?1)
RETURNING 1`

// sqliteForceRelease: ?1 resource, ?2 token. No row is a refusal; sqliteGet tells why.
const sqliteForceRelease = `
DELETE FROM {table} WHERE resource = ?1 AND token = ?2 AND expires_at > {now}
RETURNING ` + sqliteReleased + `, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata`

// sqliteGuard: ?1 resource, ?2 owner, ?3 token. It changes nothing, and takes the write lock as a change does, for the
// rest of the transaction. No row is a refusal; sqliteRow tells why.
const sqliteGuard = `
UPDATE {table} SET owner = owner WHERE resource = ?1 AND owner = ?2 AND token = ?3 AND expires_at > {now}
RETURNING attempt, id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata`
