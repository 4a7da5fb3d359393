package bunstore

// The statements on shares, see share.go. What changes one is a few of them in a transaction that has the file's write lock
// from its begin, so that each sees what those before it did, and nobody changes anything between.

// sqliteShareStood: ?1 resource, ?2 owner, ?3 attempt, ?4 most shares, 0 for any number. How the resource stands, see
// shareStood; it is a read.
const sqliteShareStood = `
SELECT 'lease', id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata
FROM {table} WHERE resource = ?1 AND expires_at > {now}
UNION ALL SELECT CASE WHEN s.attempt = ?3 THEN 'mine' ELSE 'own' END, ` + sqliteShareColumns + `
FROM {table} AS l CROSS JOIN {shares} AS s ON s.resource = ?1 AND s.owner = ?2 AND s.lease = l.token AND s.expires_at > {now}
WHERE ` + sqliteGroup + `
UNION ALL SELECT * FROM (SELECT 'full', ` + sqliteShareColumns + `
	FROM {table} AS l CROSS JOIN {shares} AS s ON s.resource = ?1 AND s.lease = l.token AND s.expires_at > {now}
	WHERE ` + sqliteGroup + ` AND ?4 > 0 AND ?4 <= (SELECT count(*) FROM {shares} WHERE resource = ?1 AND lease = l.token AND expires_at > {now})
	ORDER BY s.expires_at LIMIT 1)
UNION ALL SELECT * FROM (SELECT 'queued', 0, resource, '', 0, 0, 0, 0, NULL FROM (SELECT resource, owner, attempt ` + sqliteFirst + `)
	WHERE owner <> ?2 OR attempt <> ?3)`

// sqliteGroup: ?1 resource. The lease l is the live one of a group.
const sqliteGroup = `l.resource = ?1 AND l.owner = '' AND l.expires_at > {now}`

const sqliteShareColumns = `s.id, s.resource, s.owner, s.token, s.acquired_at, s.expires_at, s.expires_at - {now}, s.metadata`

// sqliteShareBegin: ?1 resource, ?2 kind of group, ?3 TTL in µs. It puts a group in the place of an ended row, or of none.
const sqliteShareBegin = `
INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
VALUES (?1, '', ` + sqliteToken + `, '', {now}, {now} + ?3, ?2)
ON CONFLICT (resource) DO UPDATE SET
	owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, acquired_at = excluded.acquired_at,
	expires_at = excluded.expires_at, metadata = excluded.metadata
WHERE l.expires_at <= excluded.acquired_at
RETURNING token`

// sqliteShareGrant: ?1 resource, ?2 owner, ?3 TTL in µs, ?4 metadata, ?5 attempt. It puts a share into the live group, in place
// of one that the owner had.
const sqliteShareGrant = `
INSERT INTO {shares} (resource, owner, lease, token, attempt, acquired_at, expires_at, metadata)
SELECT ?1, ?2, l.token, ` + sqliteToken + `, ?5, {now}, {now} + ?3, ?4 FROM {table} AS l WHERE ` + sqliteGroup + `
ON CONFLICT (resource, owner) DO UPDATE SET lease = excluded.lease, token = excluded.token, attempt = excluded.attempt,
	acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, metadata = excluded.metadata
RETURNING 'granted', id, resource, owner, token, acquired_at, expires_at, ?3, metadata`

// sqliteShareEnd: ?1 resource. It makes the group end with the last of its live shares. Answers: its new end.
const sqliteShareEnd = `
UPDATE {table} AS l SET expires_at = (SELECT max(expires_at) FROM {shares} WHERE resource = ?1 AND lease = l.token)
WHERE ` + sqliteGroup + ` AND EXISTS (SELECT 1 FROM {shares} WHERE resource = ?1 AND lease = l.token AND expires_at > {now})
RETURNING expires_at`

// sqliteShareOver: ?1 resource. It deletes the row of a group that has no live share.
const sqliteShareOver = `
DELETE FROM {table} AS l WHERE ` + sqliteGroup + ` AND NOT EXISTS (
	SELECT 1 FROM {shares} WHERE resource = ?1 AND lease = l.token AND expires_at > {now})
RETURNING id`

// sqliteShareRow: ?1 resource, ?2 owner. The owner's share in the group that there is, live or not.
const sqliteShareRow = `
SELECT 'seen', s.id, s.resource, s.owner, s.token, s.acquired_at, s.expires_at,
	min(s.expires_at, l.expires_at) - {now}, s.metadata
FROM {shares} AS s JOIN {table} AS l ON l.resource = ?1 AND l.owner = '' AND l.token = s.lease
WHERE s.resource = ?1 AND s.owner = ?2`

// sqliteLiveShare: ?1 resource. The share is a live one of a live group.
const sqliteLiveShare = `expires_at > {now} AND lease = (SELECT l.token FROM {table} AS l WHERE ` + sqliteGroup + `)`

// sqliteShareRenew: ?1 resource, ?2 owner, ?3 token (-1: any), ?4 TTL in µs. No row is a refusal; sqliteShareRow tells why.
const sqliteShareRenew = `
UPDATE {shares} SET expires_at = {now} + ?4
WHERE resource = ?1 AND owner = ?2 AND (token = ?3 OR ?3 = -1) AND ` + sqliteLiveShare + `
RETURNING 'renewed', id, resource, owner, token, acquired_at, expires_at, ?4, metadata`

// sqliteShareRelease: ?1 resource, ?2 owner, ?3 token (-1: any). No row is a refusal; sqliteShareRow tells why.
const sqliteShareRelease = `
DELETE FROM {shares} WHERE resource = ?1 AND owner = ?2 AND (token = ?3 OR ?3 = -1) AND ` + sqliteLiveShare + sqliteShareReleased

// sqliteShareReleaseAttempt: ?1 resource, ?2 owner, ?3 attempt.
const sqliteShareReleaseAttempt = `
DELETE FROM {shares} WHERE resource = ?1 AND owner = ?2 AND attempt = ?3 AND ` + sqliteLiveShare + sqliteShareReleased

// sqliteShareReleaseToken: ?1 resource, ?2 token.
const sqliteShareReleaseToken = `
DELETE FROM {shares} WHERE resource = ?1 AND token = ?2 AND ` + sqliteLiveShare + sqliteShareReleased

const sqliteShareReleased = `
RETURNING 'released', id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata`

// sqliteShareGuard: ?1 resource, ?2 owner, ?3 token. As sqliteGuard.
const sqliteShareGuard = `
UPDATE {shares} SET owner = owner WHERE resource = ?1 AND owner = ?2 AND token = ?3 AND ` + sqliteLiveShare + `
RETURNING 'guarded', id, resource, owner, token, acquired_at, expires_at, expires_at - {now}, metadata`

// sqliteHolders: ?1 resource, ?2 rows. The live shares in the order of their tokens; the first column is their group's kind.
const sqliteHolders = `
SELECT l.metadata, ` + sqliteShareColumns + `
FROM {table} AS l CROSS JOIN {shares} AS s ON s.resource = ?1 AND s.lease = l.token AND s.expires_at > {now}
WHERE ` + sqliteGroup + ` ORDER BY s.token LIMIT ?2`

// sqliteShareLook: ?1 number of a ticket, ?2 kind of group and ?3 most shares that its request asks for, 0 for any number.
// Answers as sqliteLook; the time is until the first share ends where all are taken. Where the kinds differ it is a turn, to
// be refused.
const sqliteShareLook = `
SELECT w.number, head.number = w.number AND (l.id IS NULL OR l.owner = '' AND (l.metadata <> ?2 OR ?3 = 0
		OR ?3 > (SELECT count(*) FROM {shares} WHERE resource = w.resource AND lease = l.token AND expires_at > {now}))),
	coalesce(CASE WHEN head.number <> w.number THEN head.expires_at ELSE coalesce((SELECT min(expires_at) FROM {shares}
		WHERE resource = w.resource AND lease = l.token AND expires_at > {now}), l.expires_at) END - {now}, 0)
FROM {waiters} AS w
CROSS JOIN {waiters} AS head ON head.number = (SELECT number FROM {waiters}
	WHERE resource = w.resource AND expires_at > {now} ORDER BY number LIMIT 1)
LEFT JOIN {table} AS l ON l.resource = w.resource AND l.expires_at > {now}
WHERE w.number = ?1 AND w.expires_at > {now}`

// sqlitePurgeShares: ?1 rows.
const sqlitePurgeShares = `
DELETE FROM {shares} WHERE id IN (SELECT id FROM {shares} WHERE expires_at <= {now} LIMIT ?1)
RETURNING 1`
