package bunstore

import "strings"

// The statements on shares, see share.go. What changes one runs in a transaction of the store's own under READ COMMITTED, behind
// the share gate of the resource: all changes of its shares are made one after another, and each statement's snapshot has
// the ones before it. A count on an older snapshot would let in one too many.
//
// None of them waits for a caller's transaction: only such a transaction of the store's has the share gate. What concerns the
// group's row, or guards, is tried: the lease's gate, where a group begins, and the gate of the share itself, which who guards
// it holds.

// postgresShareGate: $1 resource. It is waited for, in the order in which others came. A process that is paused with the gate
// in its hand must not keep it: the server ends its session.
const postgresShareGate = `
SELECT set_config('idle_in_transaction_session_timeout', '2s', true) IS NOT NULL FROM pg_advisory_xact_lock({share gate})`

// postgresShareStood: $1 resource, $2 owner, $3 attempt, $4 most shares, 0 for any number. How the resource stands, see
// shareStood; it is a read.
const postgresShareStood = `
WITH lease AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table}
	WHERE resource = $1::text AND expires_at > clock_timestamp()
), live AS MATERIALIZED (
	SELECT s.id, s.owner, s.token, s.acquired_at, s.expires_at, s.metadata FROM lease CROSS JOIN {shares} AS s
	WHERE $4::bigint > 0 AND lease.owner = '' AND s.resource = $1::text AND s.lease = lease.token AND s.expires_at > clock_timestamp()
)
SELECT what, id, $1::text, {columns}
FROM (SELECT 'lease' AS what, id, owner, token, acquired_at, expires_at, metadata FROM lease
	UNION ALL SELECT CASE WHEN s.attempt = $3::text THEN 'mine' ELSE 'own' END,
		s.id, s.owner, s.token, s.acquired_at, s.expires_at, s.metadata
	FROM lease CROSS JOIN {shares} AS s
	WHERE lease.owner = '' AND s.resource = $1::text AND s.owner = $2::text AND s.lease = lease.token AND s.expires_at > clock_timestamp()
	UNION ALL (SELECT 'full', live.* FROM live WHERE (SELECT count(*) FROM live) >= $4::bigint ORDER BY expires_at LIMIT 1)
	UNION ALL SELECT 'queued', 0, '', 0, clock_timestamp(), clock_timestamp(), NULL
	FROM (SELECT owner, attempt ` + postgresHead + `) AS head WHERE owner <> $2::text OR attempt <> $3::text
) AS answer`

// postgresShareGrant puts a share of the group $1 (in the {groups} of the statement around it: its token, and the times of the
// share) into the table, and takes the attempt's ticket out of the queue. Arguments as postgresShareJoin.
//
// Answers: "granted", or "awaited" where others wait, who may fit in, too.
const postgresShareGrant = `ins AS (
	INSERT INTO {shares} AS s (resource, owner, lease, token, attempt, acquired_at, expires_at, metadata)
	SELECT $1::text, $2::text, groups.token, nextval({sequence}), $5::text, groups.acquired, groups.expires, $4::text
	FROM groups
	ON CONFLICT (resource, owner) DO UPDATE SET lease = excluded.lease, token = excluded.token, attempt = excluded.attempt,
		acquired_at = excluded.acquired_at, expires_at = excluded.expires_at, metadata = excluded.metadata
	RETURNING CASE WHEN EXISTS (SELECT 1 FROM {waiters} WHERE resource = $1::text AND (owner <> $2::text OR attempt <> $5::text))
		THEN 'awaited' ELSE 'granted' END AS what, id, owner, token, acquired_at, expires_at, metadata
), served AS (
	DELETE FROM {waiters} AS w USING ins
	WHERE w.resource = $1::text AND w.owner = $2::text AND w.attempt = $5::text
)`

// postgresShareMoved moves the end of the group's row, where it is another one.
const postgresShareMoved = `moved AS (
	UPDATE {table} AS l SET expires_at = till.expires_at FROM till WHERE l.id = till.id AND l.expires_at <> till.expires_at
)`

// postgresShareTurn is whether it is nobody else's turn, as in postgresAcquireQueued.
const postgresShareTurn = `($8::boolean OR coalesce(
	(SELECT owner = $2::text AND attempt = $5::text ` + postgresHead + `), true))`

// postgresShareBegin: $1 resource, $2 owner, $3 TTL in µs, $4 metadata, $5 attempt, $6 kind of group, $7 most shares or 0, $8
// whether to barge. It grants the first share of a group that it begins, as postgresAcquireQueued grants a lease, on the same
// conditions. ($7 has no meaning for a first share, and a use that gives it a type.) No row: somebody was faster, has the gate,
// or has a turn.
const postgresShareBegin = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate}) AS open, clock_timestamp() AS t
), lease AS (
	INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
	SELECT $1::text, '', nextval({sequence}), '', t, t + $3::bigint * interval '1 microsecond', $6::text
	FROM gate
	WHERE gate.open AND $7::bigint >= 0 AND {durable} AND ` + postgresShareTurn + `
		AND NOT EXISTS (SELECT 1 FROM {table} WHERE resource = $1::text AND expires_at > clock_timestamp())
	ON CONFLICT (resource) DO UPDATE SET
		owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, metadata = excluded.metadata,
		(acquired_at, expires_at) = (SELECT t, t + $3::bigint * interval '1 microsecond' FROM clock_timestamp() AS t)
	WHERE l.expires_at <= clock_timestamp()
	RETURNING token, acquired_at, expires_at
), groups AS (
	SELECT token, acquired_at AS acquired, expires_at AS expires FROM lease
), ` + postgresShareGrant + `
SELECT what, id, $1::text, {columns} FROM ins`

// postgresShareJoin: as postgresShareBegin, in a group of that kind that there is. The owner's live share is granted anew in
// place, whoever waits. An ended share keeps its slot until somebody needs that, and longer while a transaction guards it; its
// gate tells. Where the slot is given away the row has another id, a key column, and no attempt any more: a guard on an older
// snapshot, which sees the share live, meets that. The group's end moves with a share that ends later, and is found anew where a
// share that ended last is made to end earlier.
//
// The group's row is locked before its end is looked at, and its end is the last thing that changes. No row: it is over,
// full, locked, another group's by now, or the owner's share is guarded.
const postgresShareJoin = `
WITH lease AS MATERIALIZED (
	SELECT id, token, expires_at FROM {table}
	WHERE resource = $1::text AND owner = '' AND metadata = $6::text AND expires_at > clock_timestamp()
	FOR NO KEY UPDATE SKIP LOCKED
), own AS MATERIALIZED (
	SELECT s.expires_at FROM lease CROSS JOIN {shares} AS s
	WHERE s.resource = $1::text AND s.owner = $2::text AND s.lease = lease.token AND s.expires_at > clock_timestamp()
), others AS MATERIALIZED (
	SELECT count(*) AS n FROM lease CROSS JOIN {shares} AS s
	WHERE $7::bigint > 0 AND s.resource = $1::text AND s.owner <> $2::text AND s.lease = lease.token AND s.attempt <> ''
), over AS MATERIALIZED (
	SELECT s.id FROM lease CROSS JOIN {shares} AS s
	WHERE s.resource = $1::text AND s.owner <> $2::text AND s.attempt <> ''
		AND CASE WHEN s.lease = lease.token AND s.expires_at <= clock_timestamp() THEN pg_try_advisory_xact_lock({gate of s}) ELSE false END
	LIMIT (SELECT CASE WHEN $7::bigint > 0 THEN greatest(n - $7::bigint + 1, 0) ELSE 0 END FROM others)
), gone AS (
	UPDATE {shares} AS s SET id = DEFAULT, attempt = '' FROM over WHERE s.id = over.id
), gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate of share}) AS open, clock_timestamp() AS t
), groups AS (
	SELECT lease.token, t AS acquired, t + $3::bigint * interval '1 microsecond' AS expires FROM lease CROSS JOIN gate CROSS JOIN others
	WHERE gate.open AND lease.expires_at > clock_timestamp() AND ($7::bigint = 0 OR n - (SELECT count(*) FROM over) < $7::bigint) AND {durable}
		AND (EXISTS (SELECT 1 FROM own) OR ` + postgresShareTurn + `)
), ` + postgresShareGrant + `, till AS (
	SELECT lease.id, CASE WHEN EXISTS (SELECT 1 FROM own WHERE expires_at >= lease.expires_at)
		THEN greatest(ins.expires_at, (SELECT max(s.expires_at) FROM {shares} AS s
			WHERE s.resource = $1::text AND s.owner <> $2::text AND s.lease = lease.token))
		ELSE greatest(ins.expires_at, lease.expires_at) END AS expires_at
	FROM lease CROSS JOIN ins
), ` + postgresShareMoved + `
SELECT what, id, $1::text, {columns} FROM ins`

// postgresShareSeen is the owner's share in the group that there is, as the snapshot has it, live or not.
const postgresShareSeen = `
SELECT s.id, s.owner, s.token, s.attempt, s.acquired_at, s.metadata, least(s.expires_at, l.expires_at) AS expires_at
FROM {shares} AS s JOIN {table} AS l ON l.resource = $1::text AND l.owner = '' AND l.token = s.lease
WHERE s.resource = $1::text AND s.owner = $2::text`

// postgresShareRow: $1 resource, $2 owner. That share.
const postgresShareRow = `
SELECT 'seen', id, $1::text, {columns} FROM (` + postgresShareSeen + `) AS share`

// postgresShareRenew: $1 resource, $2 owner, $3 token (-1: any), $4 TTL in µs. Answers as postgresRenew.
const postgresShareRenew = `
WITH seen AS MATERIALIZED (` + postgresShareSeen + `
), lease AS MATERIALIZED (
	SELECT id, token, expires_at FROM {table} WHERE resource = $1::text AND owner = '' AND expires_at > clock_timestamp()
	FOR NO KEY UPDATE SKIP LOCKED
), old AS MATERIALIZED (
	SELECT s.id, s.expires_at FROM lease CROSS JOIN {shares} AS s
	WHERE s.resource = $1::text AND s.owner = $2::text AND s.lease = lease.token
), upd AS (
	UPDATE {shares} AS s SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
	FROM lease CROSS JOIN old
	WHERE s.id = old.id AND (s.token = $3::bigint OR $3::bigint = -1)
		AND old.expires_at > clock_timestamp() AND lease.expires_at > clock_timestamp() AND {durable}
	RETURNING 'renewed' AS what, s.id, s.owner, s.token, s.acquired_at, s.expires_at, s.metadata
), till AS (
	SELECT lease.id, CASE WHEN old.expires_at >= lease.expires_at
		THEN greatest(upd.expires_at, (SELECT max(s.expires_at) FROM {shares} AS s
			WHERE s.resource = $1::text AND s.owner <> $2::text AND s.lease = lease.token))
		ELSE greatest(upd.expires_at, lease.expires_at) END AS expires_at
	FROM lease CROSS JOIN old CROSS JOIN upd
), ` + postgresShareMoved + `
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM upd
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM upd)) AS answer`

// postgresShareRelease: $1 resource, $2 owner, $3 token (-1: any). The group ends with its last share: its row is deleted, or,
// where a guard has its key locked, ended, which is as good to all who look.
//
// Answers: "released" or "awaited", or "seen" with the share as the snapshot has it, or no row.
const postgresShareRelease = `
WITH seen AS MATERIALIZED (` + postgresShareSeen + `
), gate AS MATERIALIZED (
	SELECT id, expires_at, pg_try_advisory_xact_lock({gate of share}) AS open FROM seen
	WHERE (token = $3::bigint OR $3::bigint = -1) AND expires_at > clock_timestamp()
), ` + postgresShareFree

// postgresShareReleaseAttempt: $1 resource, $2 owner, $3 attempt. As postgresShareRelease, for a caller that knows no token.
const postgresShareReleaseAttempt = `
WITH seen AS MATERIALIZED (
	SELECT * FROM (` + postgresShareSeen + `) AS share WHERE attempt = $3::text
), gate AS MATERIALIZED (
	SELECT id, expires_at, pg_try_advisory_xact_lock({gate of share}) AS open FROM seen WHERE expires_at > clock_timestamp()
), ` + postgresShareFree

// postgresShareFree deletes the share whose gate is open.
const postgresShareFree = `lease AS MATERIALIZED (
	SELECT l.id, l.token, l.expires_at FROM gate CROSS JOIN {table} AS l
	WHERE gate.open AND l.resource = $1::text AND l.owner = '' AND l.expires_at > clock_timestamp()
	FOR NO KEY UPDATE OF l SKIP LOCKED
), rest AS MATERIALIZED (
	SELECT CASE WHEN gate.expires_at < lease.expires_at THEN lease.expires_at ELSE (SELECT max(s.expires_at) FROM {shares} AS s
		WHERE s.resource = $1::text AND s.owner <> $2::text AND s.lease = lease.token AND s.expires_at > clock_timestamp())
		END AS expires_at
	FROM lease CROSS JOIN gate
), del AS (
	DELETE FROM {shares} AS s USING lease CROSS JOIN gate
	WHERE s.id = gate.id AND s.lease = lease.token AND s.expires_at > clock_timestamp() AND {unhurried}
	RETURNING {released} AS what, s.id, s.owner, s.token, s.acquired_at, s.expires_at, s.metadata
), last AS MATERIALIZED (
	SELECT l.id FROM rest CROSS JOIN lease CROSS JOIN {table} AS l
	WHERE rest.expires_at IS NULL AND l.id = lease.id FOR UPDATE OF l SKIP LOCKED
), ended AS (
	DELETE FROM {table} AS l USING last CROSS JOIN del WHERE l.id = last.id
), moved AS (
	UPDATE {table} AS l SET expires_at = coalesce(rest.expires_at, clock_timestamp()) FROM lease CROSS JOIN rest CROSS JOIN del
	WHERE l.id = lease.id AND NOT EXISTS (SELECT 1 FROM last)
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM del
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM del)) AS answer`

// postgresShareForceRelease: as postgresShareRelease, but it waits for the disk, as an operator expects.
var postgresShareForceRelease = strings.Replace(postgresShareRelease, "{unhurried}", "{durable}", 1)

// postgresShareOf: $1 resource, $2 token. The owner of the live share with that token.
const postgresShareOf = `
SELECT s.owner FROM {shares} AS s JOIN {table} AS l ON l.resource = $1::text AND l.owner = '' AND l.token = s.lease
WHERE s.resource = $1::text AND s.token = $2::bigint AND s.expires_at > clock_timestamp() AND l.expires_at > clock_timestamp()`

// postgresHolders: $1 resource, $2 rows. The live shares in the order of their tokens; the first column is their group's kind.
const postgresHolders = `
SELECT kind, id, $1::text, {columns}
FROM (SELECT l.metadata AS kind, s.id, s.owner, s.token, s.acquired_at, s.expires_at, s.metadata
	FROM {table} AS l JOIN {shares} AS s ON s.resource = $1::text AND s.lease = l.token
	WHERE l.resource = $1::text AND l.owner = '' AND l.expires_at > clock_timestamp() AND s.expires_at > clock_timestamp()
	ORDER BY s.token LIMIT $2::bigint) AS shares`

// postgresShareLook: $1 the tickets as JSON, each with the kind of group and the most shares that its request has. Answers as
// postgresLook; the time is until the first share ends where all are taken. Where the kinds differ it is a turn, to be refused.
const postgresShareLook = `
SELECT asked.number,
	head.number = asked.number AND (l.token IS NULL OR l.owner = '' AND (l.metadata <> asked.kind OR taken.n < asked.most OR asked.most = 0)),
	coalesce(greatest(1, extract(epoch FROM CASE WHEN head.number <> asked.number THEN head.expires_at
		ELSE coalesce(taken.ends, l.expires_at) END - clock_timestamp()) * 1000000)::bigint, 0)
FROM json_to_recordset($1::text::json) AS asked(resource text, number bigint, kind text, most bigint)
CROSS JOIN LATERAL (SELECT FROM {waiters}
	WHERE resource = asked.resource AND number = asked.number AND expires_at > clock_timestamp() LIMIT 1) AS w
CROSS JOIN LATERAL (SELECT number, expires_at FROM {waiters}
	WHERE resource = asked.resource AND expires_at > clock_timestamp() ORDER BY number LIMIT 1) AS head
LEFT JOIN LATERAL (SELECT owner, token, metadata, expires_at FROM {table}
	WHERE resource = asked.resource AND expires_at > clock_timestamp() LIMIT 1) AS l ON true
LEFT JOIN LATERAL (SELECT count(*) AS n, min(expires_at) AS ends FROM {shares}
	WHERE asked.most > 0 AND l.owner = '' AND resource = asked.resource AND lease = l.token AND expires_at > clock_timestamp()) AS taken ON true`

// postgresShareGuard: as postgresGuard, for a share. Its own gate keeps it from being released or taken over in place, and its
// slot from being given away past its end; the lease's gate keeps out whoever would hold the resource alone, or in another
// group, and is tried after it: a guard that is refused does not shut it.
const postgresShareGuard = `
WITH seen AS MATERIALIZED (` + postgresShareSeen + `
), gate AS MATERIALIZED (
	SELECT id, CASE WHEN pg_try_advisory_xact_lock_shared({gate of share}) THEN pg_try_advisory_xact_lock_shared({gate})
		ELSE false END AS open
	FROM seen WHERE token = $3::bigint AND expires_at > clock_timestamp()
), cur AS MATERIALIZED (
	SELECT s.id FROM gate CROSS JOIN {shares} AS s CROSS JOIN {table} AS l
	WHERE gate.open AND s.id = gate.id AND s.token = $3::bigint AND s.expires_at > clock_timestamp()
		AND l.resource = $1::text AND l.token = s.lease AND l.expires_at > clock_timestamp()
	FOR KEY SHARE OF s, l SKIP LOCKED
), noted AS MATERIALIZED (
	SELECT id, set_config('rowlease.guards', {guards} || ' ' || {gate} || ' ', true) FROM cur
)
SELECT CASE WHEN EXISTS (SELECT 1 FROM noted) THEN 'guarded' ELSE 'seen' END, id, $1::text, {columns}
FROM seen`

// postgresShareProbe: $1 resource, $2 owner. As postgresProbe, for the owner's share. The lease's gate keeps out who begins a
// group, and asks for no gate of a share.
const postgresShareProbe = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock_shared({gate}) AND pg_try_advisory_xact_lock_shared({gate of share}) AS open
), ins AS (
	INSERT INTO {shares} (resource, owner, lease, token, attempt, acquired_at, expires_at)
	SELECT $1::text, $2::text, 0, nextval({sequence}), '', t, t FROM gate, clock_timestamp() AS t WHERE gate.open
	ON CONFLICT (resource, owner) DO NOTHING
)
SELECT open FROM gate`
