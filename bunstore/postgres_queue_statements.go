package bunstore

// The statements on the tickets of those who wait, see postgresWaiterTable. None waits for the disk: a ticket that a crash
// takes back is one of a waiter that queues again.

// unhurried lets the statement's own transaction commit without the disk. It is true.
const unhurried = `set_config('synchronous_commit', 'off', true) IS NOT NULL`

// postgresHead is the first live ticket of the resource $1: whose turn it is. It reads the primary key in its order and
// stops at the first one, however many there are.
const postgresHead = `FROM {waiters} WHERE resource = $1::text AND expires_at > clock_timestamp() ORDER BY number LIMIT 1`

// postgresEnqueue: $1 resource, $2 owner, $3 attempt, $4 channel, $5 ticket TTL in µs, $6 most others, 0 for any number.
//
// The queue's gate is not that of the lease, which callers' transactions hold for long. It is waited for, and the number is
// drawn behind it: numbers are in the order of commits. The attempt's live ticket is kept with its time; an ended one is
// drawn anew in place. most is judged on the snapshot, so that a full queue is refused without a write; who came
// meanwhile is counted afterwards, see postgresBefore.
//
// The attempt's ticket may be locked by an open transaction which has been granted the resource with it. An insert would
// wait for that, with the queue's gate shut behind it, so that the ticket's row is tried first (free): a live one is told as
// it is, one that has ended is busy.
//
// Answers: number, since, expires_at in µs; number 0 where the ticket is busy; no row where the queue is full.
const postgresEnqueue = `
WITH mine AS MATERIALIZED (
	SELECT number, since, expires_at FROM {waiters}
	WHERE resource = $1::text AND owner = $2::text AND attempt = $3::text
), gate AS MATERIALIZED (
	SELECT clock_timestamp() AS t FROM pg_advisory_xact_lock({queue gate})
	WHERE $6::bigint = 0
		OR $6::bigint > (SELECT count(*) FROM (SELECT 1 FROM {waiters}
			WHERE resource = $1::text AND expires_at > clock_timestamp() AND (owner <> $2::text OR attempt <> $3::text)
			LIMIT $6::bigint) AS others)
		OR EXISTS (SELECT 1 FROM mine WHERE expires_at > clock_timestamp())
), free AS MATERIALIZED (
	SELECT w.number FROM gate CROSS JOIN {waiters} AS w
	WHERE w.resource = $1::text AND w.owner = $2::text AND w.attempt = $3::text FOR UPDATE OF w SKIP LOCKED
), ins AS (
	INSERT INTO {waiters} AS w (resource, owner, attempt, channel, since, expires_at)
	SELECT $1::text, $2::text, $3::text, $4::text, t, t + $5::bigint * interval '1 microsecond'
	FROM gate WHERE {unhurried} AND (EXISTS (SELECT 1 FROM free) OR NOT EXISTS (SELECT 1 FROM mine))
	ON CONFLICT (attempt, owner, resource) DO UPDATE SET
		(number, since, expires_at) = (SELECT CASE WHEN live THEN w.number ELSE excluded.number END,
			CASE WHEN live THEN w.since ELSE excluded.since END, CASE WHEN live THEN w.expires_at ELSE excluded.expires_at END
			FROM (SELECT w.expires_at > clock_timestamp() AS live) AS old),
		channel = excluded.channel
	RETURNING number, since, expires_at
)
SELECT number, (extract(epoch FROM since) * 1000000)::bigint, (extract(epoch FROM expires_at) * 1000000)::bigint
FROM (SELECT * FROM ins UNION ALL
	SELECT CASE WHEN expires_at > clock_timestamp() THEN number ELSE 0 END, since, expires_at FROM mine
	WHERE EXISTS (SELECT 1 FROM gate) AND NOT EXISTS (SELECT 1 FROM ins)) AS answer`

// postgresBefore: $1 resource, $2 number, $3 most. Whether so many live tickets are before the one that was drawn.
const postgresBefore = `
SELECT count(*) FROM (SELECT 1 FROM {waiters}
	WHERE resource = $1::text AND number < $2::bigint AND expires_at > clock_timestamp() LIMIT $3::bigint) AS others`

// postgresDequeue: $1 resource, $2 owner, $3 attempt. Answers: the number, or no row.
const postgresDequeue = `
DELETE FROM {waiters} WHERE resource = $1::text AND owner = $2::text AND attempt = $3::text AND {unhurried} RETURNING number`

// postgresNext: $1 resource, $2 the channel that needs no announcement. It tells the first live ticket of a resource that is
// free, or shared by those whom it may join, that it has its turn. It runs when what freed the resource is committed, so
// that it sees who came meanwhile.
//
// Answers: the number, or no row.
const postgresNext = `
SELECT CASE WHEN channel IN ('', $2::text) OR pg_notify(channel, number::text) IS NOT NULL THEN number ELSE number END
FROM (SELECT number, channel ` + postgresHead + `) AS head
WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE resource = $1::text AND owner <> '' AND expires_at > clock_timestamp())`

// postgresKeep: $1 the numbers as a JSON array, $2 ticket TTL in µs, $3 channel.
//
// A ticket whose row is locked is one that an open transaction has been granted the resource with, or that is just leaving:
// it is not waited for, and told as kept as long as it is there, since the transaction may be rolled back. Whoever keeps
// tickets takes out those that are dead and in the way of the ones kept, so that nobody goes past them again and again.
//
// Answers: the numbers that are live.
const postgresKeep = `
WITH live AS MATERIALIZED (
	SELECT w.number, w.resource
	FROM (SELECT value::bigint AS number FROM json_array_elements_text($1::text::json) AS a(value)) AS asked
	JOIN {waiters} AS w ON w.number = asked.number
	WHERE w.expires_at > clock_timestamp() AND {unhurried}
), free AS MATERIALIZED (
	SELECT w.number FROM live JOIN {waiters} AS w ON w.number = live.number
	WHERE w.expires_at > clock_timestamp() FOR NO KEY UPDATE OF w SKIP LOCKED
), upd AS (
	UPDATE {waiters} AS w SET expires_at = clock_timestamp() + $2::bigint * interval '1 microsecond', channel = $3::text
	FROM free WHERE w.number = free.number
), dead AS MATERIALIZED (
	SELECT w.number FROM (SELECT resource, min(number) AS number FROM live GROUP BY resource) AS mine
	CROSS JOIN LATERAL (SELECT min(number) AS number FROM (SELECT number FROM {waiters}
		WHERE resource = mine.resource AND expires_at > clock_timestamp() ORDER BY number LIMIT 1) AS first) AS head
	JOIN {waiters} AS w ON w.resource = mine.resource AND w.number < head.number
	WHERE w.expires_at <= clock_timestamp() LIMIT 10000 FOR UPDATE OF w SKIP LOCKED
), del AS (
	DELETE FROM {waiters} AS w USING dead WHERE w.number = dead.number AND w.expires_at <= clock_timestamp()
)
SELECT number FROM live`

// postgresLook: $1 the tickets as JSON. Answers: for each one that is live its number, whether it is the first one and the
// resource is free, and in µs how long the first one's ticket or, where it is the first, the lease lasts.
//
// Each LIMIT keeps a join from being hashed, which would read all tickets there are for the few that are asked for.
const postgresLook = `
SELECT asked.number, head.number = asked.number AND l.expires_at IS NULL,
	coalesce(greatest(1, extract(epoch FROM CASE WHEN head.number = asked.number THEN l.expires_at ELSE head.expires_at END
		- clock_timestamp()) * 1000000)::bigint, 0)
FROM json_to_recordset($1::text::json) AS asked(resource text, number bigint)
CROSS JOIN LATERAL (SELECT FROM {waiters}
	WHERE resource = asked.resource AND number = asked.number AND expires_at > clock_timestamp() LIMIT 1) AS w
CROSS JOIN LATERAL (SELECT number, expires_at FROM {waiters}
	WHERE resource = asked.resource AND expires_at > clock_timestamp() ORDER BY number LIMIT 1) AS head
LEFT JOIN LATERAL (SELECT expires_at FROM {table}
	WHERE resource = asked.resource AND expires_at > clock_timestamp() LIMIT 1) AS l ON true`

// postgresWaiters: $1 resource, $2 rows. Answers: how many wait and the first of them, at least one row.
const postgresWaiters = `
WITH live AS MATERIALIZED (
	SELECT number, owner, since, expires_at FROM {waiters} WHERE resource = $1::text AND expires_at > clock_timestamp()
)
SELECT n, number, owner, (extract(epoch FROM since) * 1000000)::bigint, (extract(epoch FROM expires_at) * 1000000)::bigint
FROM (SELECT count(*) AS n FROM live) AS all_of_them
LEFT JOIN (SELECT * FROM live ORDER BY number LIMIT $2::bigint) AS first ON true
ORDER BY number`

const postgresAnnounce = `SELECT pg_notify($1::text, $2::text) IS NOT NULL`
