package bunstore

import "strings"

// postgresStatements is the SQL for PostgreSQL, 12 and later. Each is one round trip and atomic by itself. Arguments
// are cast, so that they mean the same in every exec mode of every driver. Only clock_timestamp() decides: now() stands
// still in a transaction.
type postgresStatements struct {
	acquire, acquireQueued, acquireAll, renew, release, releaseAttempt, get, list, purge, forceRelease string

	// Of those who wait.
	enqueue, before, dequeue, next, keep, look, waiters, announce string

	// In a caller's transaction.
	acquireTx, claim, renewTx, releaseTx, guard, probe string

	// Of shares: looked at, changed behind the share gate, and in a caller's transaction.
	shareStood, shareSeen, shareOf, holders, shareLook                                                              string
	shareGate, shareBegin, shareJoin, shareRenew, shareRelease, shareReleaseAttempt, shareForceRelease, purgeShares string
	shareGuard, shareProbe                                                                                          string
}

func newPostgresStatements(t table) postgresStatements {
	gate := func(resource, relation string) string {
		return "hashtextextended(" + resource + " COLLATE \"C\", " + quoteLiteral(relation) + "::regclass::oid::bigint)"
	}
	gateOfShare := func(owner, resource string) string {
		return "hashtextextended(" + owner + " COLLATE \"C\", " + gate(resource, t.sharesQuoted()) + ")"
	}
	text := strings.NewReplacer(
		"{table}", t.quoted(),
		"{sequence}", quoteLiteral(t.sequenceQuoted()),
		"{waiters}", t.waitersQuoted(),
		"{shares}", t.sharesQuoted(),
		"{gate}", gate("$1::text", t.quoted()),
		"{gate of wanted}", gate("wanted.resource", t.quoted()),
		"{queue gate}", gate("$1::text", t.waitersQuoted()),
		"{share gate}", gate("$1::text", t.sharesQuoted()),
		"{gate of share}", gateOfShare("$2::text", "$1::text"),
		"{gate of s}", gateOfShare("s.owner", "$1::text"),
		"{gate of any share}", gateOfShare("s.owner", "s.resource"),
		"{unhurried}", unhurried,
		"{released}", strings.ReplaceAll(postgresReleased, "{waiters}", t.waitersQuoted()),
		"{durable}", durable,
		"{guards}", postgresGuards,
		"{columns}", postgresColumns,
	)
	return postgresStatements{
		acquire:        text.Replace(postgresAcquire),
		acquireQueued:  text.Replace(postgresAcquireQueued),
		acquireAll:     text.Replace(postgresAcquireAll),
		renew:          text.Replace(postgresRenew),
		release:        text.Replace(postgresRelease),
		releaseAttempt: text.Replace(postgresReleaseAttempt),
		get:            text.Replace(postgresGet),
		list:           text.Replace(postgresList),
		purge:          text.Replace(postgresPurge),
		forceRelease:   text.Replace(postgresForceRelease),

		enqueue:  text.Replace(postgresEnqueue),
		before:   text.Replace(postgresBefore),
		dequeue:  text.Replace(postgresDequeue),
		next:     text.Replace(postgresNext),
		keep:     text.Replace(postgresKeep),
		look:     text.Replace(postgresLook),
		waiters:  text.Replace(postgresWaiters),
		announce: text.Replace(postgresAnnounce),

		acquireTx: text.Replace(postgresAcquireTx),
		claim:     text.Replace(postgresClaim),
		renewTx:   text.Replace(postgresRenewTx),
		releaseTx: text.Replace(postgresReleaseTx),
		guard:     text.Replace(postgresGuard),
		probe:     text.Replace(postgresProbe),

		shareGate:           text.Replace(postgresShareGate),
		shareStood:          text.Replace(postgresShareStood),
		shareBegin:          text.Replace(postgresShareBegin),
		shareJoin:           text.Replace(postgresShareJoin),
		shareRenew:          text.Replace(postgresShareRenew),
		shareRelease:        text.Replace(postgresShareRelease),
		shareReleaseAttempt: text.Replace(postgresShareReleaseAttempt),
		shareOf:             text.Replace(postgresShareOf),
		holders:             text.Replace(postgresHolders),
		shareForceRelease:   text.Replace(postgresShareForceRelease),
		shareSeen:           text.Replace(postgresShareRow),
		purgeShares:         text.Replace(postgresPurgeShares),
		shareLook:           text.Replace(postgresShareLook),
		shareGuard:          text.Replace(postgresShareGuard),
		shareProbe:          text.Replace(postgresShareProbe),
	}
}

// postgresColumns are the columns of every answer (see row) that follow the resource.
const postgresColumns = `owner, token,
	(extract(epoch FROM acquired_at) * 1000000)::bigint, (extract(epoch FROM expires_at) * 1000000)::bigint,
	(extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint, metadata`

// durable makes the statement's own transaction wait for the disk where the database's default is not to: after a
// crash a token could come again, and a holder could be forgotten. It is true. It must not be used inside a caller's
// transaction, which it would change.
const durable = `(current_setting('synchronous_commit') <> 'off' OR set_config('synchronous_commit', 'on', true) IS NOT NULL)`

// postgresReleased is the word for a release: "awaited" where somebody may wait, and is to be told when it is committed.
const postgresReleased = `CASE WHEN EXISTS (SELECT 1 FROM {waiters} WHERE resource = $1::text) THEN 'awaited' ELSE 'released' END`

// postgresAcquire: $1 resource, $2 owner, $3 TTL in µs, $4 metadata, $5 attempt.
//
// cur is the live lease that settles the matter without a write: another owner's, or the one that this very attempt
// got before. Only when there is none is the gate tried, the advisory lock that orders the changes of one resource: an
// insert beside an open transaction's insert of the same resource would wait for it. The gate's key is made from the
// table's oid, so that "t" and "public.t" are one gate. The token is drawn inside the gate, so that a later grant has
// a larger one. An ended row, or one of the same owner, is taken over in place and keeps its id; the times are computed
// again there, since the values for the insert were computed before a wait for the row's lock.
//
// It takes nothing that anybody waits for, whoever that is: whose turn it is, and what follows from it, is
// postgresAcquireQueued's to say. So what is acquired without a queue costs no more than a look that nobody is in it; more
// joins would be planned each time by a driver that does not prepare.
//
// Answers: "granted" (look at remaining: if the statement waited for the row, the lease may be over already), "mine"
// (the attempt's own), "held", or no row: the gate was closed, another acquirer won between snapshot and gate, or
// somebody waits.
const postgresAcquire = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate}) AS open, clock_timestamp() AS t
), cur AS MATERIALIZED (
	SELECT CASE WHEN owner = $2::text THEN 'mine' ELSE 'held' END AS what,
		id, owner, token, acquired_at, expires_at, metadata
	FROM {table}
	WHERE resource = $1::text AND expires_at > clock_timestamp() AND (owner <> $2::text OR attempt = $5::text)
), ins AS (
	INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
	SELECT $1::text, $2::text, nextval({sequence}), $5::text, t, t + $3::bigint * interval '1 microsecond', $4::text
	FROM gate
	WHERE gate.open AND NOT EXISTS (SELECT 1 FROM cur) AND {durable}
		AND NOT EXISTS (SELECT 1 FROM {waiters} WHERE resource = $1::text AND expires_at > clock_timestamp() LIMIT 1)
	ON CONFLICT (resource) DO UPDATE SET
		owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, metadata = excluded.metadata,
		(acquired_at, expires_at) = (SELECT t, t + $3::bigint * interval '1 microsecond' FROM clock_timestamp() AS t)
	WHERE l.expires_at <= clock_timestamp() OR (l.owner = excluded.owner AND l.attempt <> excluded.attempt)
	RETURNING 'granted' AS what, id, owner, token, acquired_at, expires_at, metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM ins UNION ALL SELECT * FROM cur) AS answer`

// postgresAcquireQueued: as postgresAcquire, $6 whether to barge. It is for a resource that somebody waits for: the first
// live ticket gets it, and whoever holds it already gets it in place. A grant takes the attempt's ticket out of the queue,
// wherever that stood, also one that is found again: the attempt may have queued when the grant's answer was lost.
//
// cur is the live lease, "own" where it is the same owner's with another attempt, and head whose turn it is, read only
// when there is no lease.
const postgresAcquireQueued = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate}) AS open, clock_timestamp() AS t
), cur AS MATERIALIZED (
	SELECT CASE WHEN owner <> $2::text THEN 'held' WHEN attempt = $5::text THEN 'mine' ELSE 'own' END AS what,
		id, owner, token, acquired_at, expires_at, metadata
	FROM {table}
	WHERE resource = $1::text AND expires_at > clock_timestamp()
), head AS MATERIALIZED (
	SELECT CASE WHEN $6::boolean OR owner = $2::text AND attempt = $5::text THEN 'own' ELSE 'queued' END AS what
	` + postgresHead + `
), ins AS (
	INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
	SELECT $1::text, $2::text, nextval({sequence}), $5::text, t, t + $3::bigint * interval '1 microsecond', $4::text
	FROM gate
	WHERE gate.open AND coalesce((SELECT what FROM cur), (SELECT what FROM head), 'own') = 'own' AND {durable}
	ON CONFLICT (resource) DO UPDATE SET
		owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, metadata = excluded.metadata,
		(acquired_at, expires_at) = (SELECT t, t + $3::bigint * interval '1 microsecond' FROM clock_timestamp() AS t)
	WHERE l.expires_at <= clock_timestamp() OR (l.owner = excluded.owner AND l.attempt <> excluded.attempt)
	RETURNING 'granted' AS what, id, owner, token, acquired_at, expires_at, metadata
), served AS (
	DELETE FROM {waiters} AS w USING (SELECT what FROM ins UNION ALL SELECT what FROM cur WHERE what = 'mine') AS got
	WHERE w.resource = $1::text AND w.owner = $2::text AND w.attempt = $5::text
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM ins UNION ALL SELECT * FROM cur WHERE what <> 'own') AS answer`

// postgresRenew: $1 resource, $2 owner, $3 token (-1: any), $4 TTL in µs.
//
// The row is locked first and judged afterwards: an update whose condition was judged before it waited for a row lock
// would renew a lease that ended during the wait. FOR NO KEY UPDATE is the update's own lock, and not kept out by a
// guard's FOR KEY SHARE. A row that somebody else has locked, an open transaction that renews or releases it, is skipped
// and not waited for.
//
// Answers: "renewed", or "seen" with the row as the snapshot has it, or no row. A grant that was seen current and was not
// renewed has its row locked, or changed meanwhile: ask again.
const postgresRenew = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table} WHERE resource = $1::text
), cur AS MATERIALIZED (
	SELECT id, owner, token, expires_at FROM {table} WHERE resource = $1::text AND owner = $2::text FOR NO KEY UPDATE SKIP LOCKED
), upd AS (
	UPDATE {table} AS l SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
	FROM cur
	WHERE l.id = cur.id AND l.token = cur.token AND cur.owner = $2::text AND (cur.token = $3::bigint OR $3::bigint = -1)
		AND cur.expires_at > clock_timestamp() AND {durable}
	RETURNING 'renewed' AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM upd
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM upd)) AS answer`

// postgresRelease: $1 resource, $2 owner, $3 token (-1: any).
//
// The gate is tried for a grant that the snapshot finds current: it is closed while a transaction guards the lease or
// changes it. A lease that ended is not released, and its remaining time tells if it ended while the statement waited for
// the row's lock: a bare count would call that a success. The commit does not wait for the disk: a release that a crash
// undoes only means waiting for the TTL. It must not be used inside a caller's transaction, whose commit would not wait
// either.
//
// Answers: "released" or "awaited", or "seen" with the row as the snapshot has it, or no row. A grant that was seen current and was not
// released is guarded, or its row changed meanwhile: ask again.
const postgresRelease = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table} WHERE resource = $1::text
), gate AS MATERIALIZED (
	SELECT id, pg_try_advisory_xact_lock({gate}) AS open FROM seen
	WHERE owner = $2::text AND (token = $3::bigint OR $3::bigint = -1) AND expires_at > clock_timestamp()
), del AS (
	DELETE FROM {table} AS l
	WHERE l.id = (SELECT id FROM gate WHERE open) AND l.owner = $2::text AND (l.token = $3::bigint OR $3::bigint = -1)
		AND l.expires_at > clock_timestamp() AND set_config('synchronous_commit', 'off', true) IS NOT NULL
	RETURNING {released} AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM del
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM del)) AS answer`

// postgresReleaseAttempt: $1 resource, $2 owner, $3 attempt. As postgresRelease, for a caller that knows no token.
//
// Answers: "released" or "awaited", or "seen" with the attempt's live grant that was not released, or no row.
const postgresReleaseAttempt = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata, pg_try_advisory_xact_lock({gate}) AS open FROM {table}
	WHERE resource = $1::text AND owner = $2::text AND attempt = $3::text AND expires_at > clock_timestamp()
), del AS (
	DELETE FROM {table} AS l USING seen
	WHERE l.id = seen.id AND seen.open AND l.token = seen.token AND l.expires_at > clock_timestamp()
		AND set_config('synchronous_commit', 'off', true) IS NOT NULL
	RETURNING {released} AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM del
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM del)) AS answer`

// postgresGet: $1 resource.
const postgresGet = `
SELECT 'live', id, resource, {columns}
FROM {table} WHERE resource = $1::text AND expires_at > clock_timestamp()`

// postgresList: $1 first resource of the prefix, $2 the resource that follows the prefix's last or empty for no end,
// $3 the resource after which the page begins, $4 owner or empty for any, $5 rows. The column's collation is "C", so that
// order and ranges go by bytes.
const postgresList = `
SELECT 'live', id, resource, {columns}
FROM {table}
WHERE resource >= $1::text AND ($2::text = '' OR resource < $2::text) AND resource > $3::text
	AND ($4::text = '' OR owner = $4::text) AND expires_at > clock_timestamp()
ORDER BY resource LIMIT $5::bigint`

// postgresPurge: $1 rows. A row that somebody is just taking over, renewing or guarding is locked, and skipped; the
// condition is judged again on the row that is deleted. It takes no gate: for the milliseconds that it runs an acquire of
// one of its resources waits for it, which is better than a refusal of what is free. It takes out as many dead tickets,
// uncounted; it frees nothing that anybody waits for.
const postgresPurge = `
WITH ended AS MATERIALIZED (
	SELECT id FROM {table} WHERE expires_at <= clock_timestamp() LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), del AS (
	DELETE FROM {table} AS l USING ended WHERE l.id = ended.id AND l.expires_at <= clock_timestamp() RETURNING 1
), dead AS MATERIALIZED (
	SELECT number FROM {waiters} WHERE expires_at <= clock_timestamp() LIMIT $1::bigint FOR UPDATE SKIP LOCKED
), tickets AS (
	DELETE FROM {waiters} AS w USING dead WHERE w.number = dead.number AND w.expires_at <= clock_timestamp()
)
SELECT count(*) FROM del`

// postgresPurgeShares: $1 rows. Ended shares, but for those that a transaction guards: their gates are shut. An acquire is refused
// while such a gate is tried here, and the server has room for so many gates only; so there are few at a time, and the commit
// does not wait for the disk.
const postgresPurgeShares = `
WITH ended AS MATERIALIZED (
	SELECT id FROM {shares} WHERE expires_at <= clock_timestamp() LIMIT least($1::bigint, 1000) FOR UPDATE SKIP LOCKED
), del AS (
	DELETE FROM {shares} AS s USING ended
	WHERE s.id = ended.id AND s.expires_at <= clock_timestamp() AND {unhurried} AND pg_try_advisory_xact_lock({gate of any share})
	RETURNING 1
)
SELECT count(*) FROM del`

// postgresForceRelease: $1 resource, $2 token. It waits for the disk, as an operator expects, and asks for the gate as
// postgresRelease does.
//
// Answers: "released" or "awaited", or "seen" with the live lease, or no row. The token's lease that was not released is guarded, or
// its row changed meanwhile: ask again.
const postgresForceRelease = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table}
	WHERE resource = $1::text AND expires_at > clock_timestamp()
), gate AS MATERIALIZED (
	SELECT id, pg_try_advisory_xact_lock({gate}) AS open FROM seen WHERE token = $2::bigint
), del AS (
	DELETE FROM {table} AS l USING gate
	WHERE l.id = gate.id AND gate.open AND l.token = $2::bigint AND l.expires_at > clock_timestamp() AND {durable}
	RETURNING {released} AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM del
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM del)) AS answer`
