package bunstore

// The statements that run in a caller's transaction. None may wait for another transaction, set what would outlast it in
// the caller's (synchronous_commit), or raise an error in contention.
//
// What changes a row first takes its gate until the transaction ends: an acquire and a release exclusively, a renewal and
// a guard shared. So nobody acquires a resource whose row an open transaction has changed, or guards, also when the lease
// is over meanwhile.

// postgresGuards is the transaction's own list of what it guards, by the keys of the gates. It is a setting that is local
// to the transaction, so that a rollback, that of a savepoint too, takes back what was guarded since. The gate itself
// does not keep out the session that holds it.
const postgresGuards = `coalesce(current_setting('rowlease.guards', true), '')`

// postgresAcquireTx: as postgresAcquireQueued, but without a commit of its own, and "guarded" where this transaction guards
// the resource. Under the levels with a snapshot the queue is the snapshot's too.
const postgresAcquireTx = `
WITH own AS MATERIALIZED (
	SELECT position(' ' || {gate} || ' ' IN {guards}) > 0 AS guarded
), gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate}) AS open
), cur AS MATERIALIZED (
	SELECT CASE WHEN owner <> $2::text THEN 'held' WHEN attempt = $5::text THEN 'mine' ELSE 'own' END AS what,
		id, owner, token, acquired_at, expires_at, metadata
	FROM {table}
	WHERE resource = $1::text AND expires_at > clock_timestamp() AND NOT (SELECT guarded FROM own)
), head AS MATERIALIZED (
	SELECT CASE WHEN $6::boolean OR owner = $2::text AND attempt = $5::text THEN 'own' ELSE 'queued' END AS what
	` + postgresHead + `
), ins AS (
	INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
	SELECT $1::text, $2::text, nextval({sequence}), $5::text, t, t + $3::bigint * interval '1 microsecond', $4::text
	FROM gate, clock_timestamp() AS t
	WHERE gate.open AND coalesce((SELECT what FROM cur), (SELECT what FROM head), 'own') = 'own' AND NOT (SELECT guarded FROM own)
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
FROM (SELECT * FROM ins UNION ALL SELECT * FROM cur WHERE what <> 'own'
	UNION ALL SELECT 'guarded', 0, '', 0, clock_timestamp(), clock_timestamp(), NULL FROM own WHERE guarded) AS answer`

// postgresClaim: $1 resource, $2 owner, $3 token. It makes a grant that an acquire has found again a part of the
// transaction: nobody else is granted the resource from now on. The row's key is locked for the reason of postgresGuard.
const postgresClaim = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock({gate}) AS open
), cur AS MATERIALIZED (
	SELECT l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata FROM {table} AS l, gate
	WHERE gate.open AND l.resource = $1::text AND l.owner = $2::text AND l.token = $3::bigint
		AND l.expires_at > clock_timestamp()
	FOR KEY SHARE OF l SKIP LOCKED
)
SELECT 'mine', id, $1::text, {columns} FROM cur`

// postgresRenewTx: as postgresRenew. The gate is tried only for a row that the statement's snapshot finds current; a row
// that somebody has locked is skipped.
//
// Answers: "renewed", or "seen" with the row as the snapshot has it, or no row.
const postgresRenewTx = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table} WHERE resource = $1::text
), gate AS MATERIALIZED (
	SELECT id, pg_try_advisory_xact_lock_shared({gate}) AS open FROM seen
	WHERE owner = $2::text AND token = $3::bigint AND expires_at > clock_timestamp()
), cur AS MATERIALIZED (
	SELECT l.id, l.expires_at FROM {table} AS l, gate
	WHERE l.id = gate.id AND gate.open AND l.token = $3::bigint
	FOR NO KEY UPDATE OF l SKIP LOCKED
), upd AS (
	UPDATE {table} AS l SET expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
	FROM cur
	WHERE l.id = cur.id AND l.token = $3::bigint AND cur.expires_at > clock_timestamp()
	RETURNING 'renewed' AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM upd
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM upd)) AS answer`

// postgresReleaseTx: as postgresRelease. The gate is taken exclusively, so that a guard which comes after it is not left
// with a part of it when the row is gone; a guard of another transaction that came before has it closed.
//
// Answers: "released" or "awaited", or "seen" with the row as the snapshot has it, or no row.
const postgresReleaseTx = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table} WHERE resource = $1::text
), gate AS MATERIALIZED (
	SELECT id, pg_try_advisory_xact_lock({gate}) AS open FROM seen
	WHERE owner = $2::text AND token = $3::bigint AND expires_at > clock_timestamp()
), cur AS MATERIALIZED (
	SELECT l.id, l.expires_at FROM {table} AS l, gate
	WHERE l.id = gate.id AND gate.open AND l.token = $3::bigint
	FOR UPDATE OF l SKIP LOCKED
), del AS (
	DELETE FROM {table} AS l USING cur
	WHERE l.id = cur.id AND l.token = $3::bigint AND cur.expires_at > clock_timestamp()
	RETURNING {released} AS what, l.id, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
)
SELECT what, id, $1::text, {columns}
FROM (SELECT * FROM del
	UNION ALL SELECT 'seen', id, owner, token, acquired_at, expires_at, metadata FROM seen
	WHERE NOT EXISTS (SELECT 1 FROM del)) AS answer`

// postgresGuard: $1 resource, $2 owner, $3 token.
//
// The statement's snapshot is older than the gate, so that what it saw may be over by the time the gate is taken: the
// row's key is locked too, in the same statement. A takeover changes the token, which is a key column, and a release
// removes the row; both conflict with FOR KEY SHARE: no row under READ COMMITTED, 40001 under the others. A renewal does
// not conflict. The gate keeps everybody else from acquiring the resource until the transaction ends, also past the
// lease's end; releases by others ask for it too. Nothing relies on the row's lock to last: PostgreSQL 15 was seen to lose
// one that was taken while a renewal was moving the row to another page. A row that somebody has locked is skipped. The
// guard is noted in the transaction's own list.
//
// Answers: "guarded", or "seen" with the row as the snapshot has it, or no row.
const postgresGuard = `
WITH seen AS MATERIALIZED (
	SELECT id, owner, token, acquired_at, expires_at, metadata FROM {table} WHERE resource = $1::text
), gate AS MATERIALIZED (
	SELECT id, pg_try_advisory_xact_lock_shared({gate}) AS open FROM seen
	WHERE owner = $2::text AND token = $3::bigint AND expires_at > clock_timestamp()
), cur AS MATERIALIZED (
	SELECT l.id FROM {table} AS l, gate
	WHERE l.id = gate.id AND gate.open AND l.token = $3::bigint AND l.expires_at > clock_timestamp()
	FOR KEY SHARE OF l SKIP LOCKED
), noted AS MATERIALIZED (
	SELECT id, set_config('rowlease.guards', {guards} || ' ' || {gate} || ' ', true) FROM cur
)
SELECT CASE WHEN EXISTS (SELECT 1 FROM noted) THEN 'guarded' ELSE 'seen' END, id, $1::text, {columns}
FROM seen`

// postgresProbe: $1 resource. Under REPEATABLE READ and SERIALIZABLE a transaction sees the past; an insert meets the
// present. It fails with 40001 where the resource's row is not the one that the transaction sees, does nothing where it
// is, and inserts where there is none. With the gate it does not meet the row of an acquire or a release that is not
// committed yet, and so does not wait for one. It is undone at once, the gate with it.
//
// Answers: whether the gate was open; where it was not the present is about to change.
const postgresProbe = `
WITH gate AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock_shared({gate}) AS open
), ins AS (
	INSERT INTO {table} (resource, owner, token, attempt, acquired_at, expires_at)
	SELECT $1::text, '', nextval({sequence}), '', t, t FROM gate, clock_timestamp() AS t WHERE gate.open
	ON CONFLICT (resource) DO NOTHING
)
SELECT open FROM gate`

// postgresProbeLimit keeps the probe from waiting for a row that an open transaction has renewed. It is undone with it.
const postgresProbeLimit = `SET LOCAL lock_timeout = '100ms'`

const postgresIsolation = `SELECT current_setting('transaction_isolation')`
