package bunstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rowlease/rowlease/locks"
)

// acquireAll asks again as acquire does, each time in a new transaction with nothing left of the one before.
func (p postgres) acquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error) {
	asked, err := askedAll(requests)
	if err != nil {
		return nil, err
	}
	for ask := range maxAsks {
		answer, err := p.tryAll(ctx, requests, asked)
		switch {
		case err != nil:
			return nil, err
		case answer.held != nil:
			asked := slices.IndexFunc(requests, func(r locks.Request) bool { return r.Resource == answer.held.lock.Resource })
			return nil, p.heldBy(ctx, p.db.DB, p.sql.shareSeen, requests[asked], &answer.held.lock)
		case answer.over:
		case answer.refused != "" && ask == 0: // a new snapshot mostly tells who
		case answer.refused != "":
			return nil, locks.Held(answer.refused, nil)
		default:
			return answer.granted, nil
		}
	}
	return nil, fmt.Errorf("the leases were over before they were granted, %d times", maxAsks)
}

// allAnswer is what one try came to: all is granted unless one of the others is set.
type allAnswer struct {
	granted []locks.Lock
	held    *row   // the first one with a holder who is known
	over    bool   // a lease, a grant or a holder's, was over before it was told
	refused string // the first one whose holder is not known
}

// tryAll runs the statement in a transaction of its own under READ COMMITTED, since what it grants may be a part of what
// was asked for, and nobody is to see that: it is committed only when all is granted.
func (p postgres) tryAll(ctx context.Context, requests []locks.Request, asked string) (answer allAnswer, err error) {
	err = p.readCommitted(ctx, func(q querier) (bool, error) {
		rows := make(map[string]*row, len(requests))
		err := p.query(ctx, q, len(requests), func(r *sql.Rows) error {
			var found row
			if err := found.scan(r); err != nil {
				return err
			}
			rows[found.lock.Resource] = &found
			return nil
		}, p.sql.acquireAll, asked)
		if err != nil {
			return false, err
		}
		answer = readAll(requests, rows)
		return len(answer.granted) == len(requests), nil
	})
	return answer, err
}

// readAll reads the statement's rows in byte order of the resources. A resource without a row is one that was not come to
// because of another one, unless there is no such other: then somebody was faster.
func readAll(requests []locks.Request, rows map[string]*row) (answer allAnswer) {
	missing := ""
	for _, request := range requests {
		switch found := rows[request.Resource]; {
		case found == nil:
			if missing == "" {
				missing = request.Resource
			}
		case found.what == "shut":
			answer.refused = request.Resource
		case !found.live():
			answer.over = true
		case found.what != "held":
			answer.granted = append(answer.granted, found.lock)
		case answer.held == nil:
			answer.held = found
		}
	}
	if answer.refused == "" {
		answer.refused = missing
	}
	return answer
}

// askedAll is the statement's argument: one text means the same in every exec mode of every driver, as an array would not.
func askedAll(requests []locks.Request) (string, error) {
	type asked struct {
		N        int     `json:"n"`
		Resource string  `json:"resource"`
		Owner    string  `json:"owner"`
		Attempt  string  `json:"attempt"`
		TTL      int64   `json:"ttl"`
		Barge    bool    `json:"barge"`
		Metadata *string `json:"metadata"` // a string, so that its text is kept as it is
	}
	all := make([]asked, len(requests))
	for i, r := range requests {
		all[i] = asked{N: i, Resource: r.Resource, Owner: r.Owner, Attempt: r.Attempt, TTL: r.TTL.Microseconds(), Barge: r.Barge}
		if r.Metadata != nil {
			text := string(r.Metadata)
			all[i].Metadata = &text
		}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// postgresAcquireAll: $1 the requests as JSON, numbered in byte order of their resources. As postgresAcquire, for each:
//
// cur is the live leases that settle a matter without a write. Where one of them is somebody else's, nothing is wanted,
// and no gate is tried. Otherwise wanted is what is not the attempt's own yet. Its gates are tried one by one, each only
// when the one before is open, in an order that is everybody's: so of any who meet at a gate at least one gets through
// all of them, where all could be refused if each went on past a closed gate. A recursive query does this in the order
// that it says, whatever the planner thinks. Nothing is written before all gates are open, and no gate is tried when one
// of what is wanted is somebody else's turn to get (queued). The tickets of what is granted are found
// one by one: by a join, a plan that was made while the table was empty would read all there are.
//
// Answers: "granted", "mine", "held" as there, and "shut" for the gate that was closed and for a turn. Fewer rows than requests, or any
// other word than the first two, must be rolled back: another acquirer may have won one of them between snapshot and gate.
const postgresAcquireAll = `
WITH RECURSIVE asked AS MATERIALIZED (
	SELECT n, resource, owner, attempt, ttl * interval '1 microsecond' AS ttl, barge, metadata
	FROM json_to_recordset($1::text::json)
		AS a(n bigint, resource text, owner text, attempt text, ttl bigint, barge boolean, metadata text)
), cur AS MATERIALIZED (
	SELECT CASE WHEN l.owner = asked.owner THEN 'mine' ELSE 'held' END AS what,
		l.id, l.resource, l.owner, l.token, l.acquired_at, l.expires_at, l.metadata
	FROM asked JOIN {table} AS l ON l.resource = asked.resource
	WHERE l.expires_at > clock_timestamp() AND (l.owner <> asked.owner OR l.attempt = asked.attempt)
), wanted AS MATERIALIZED (
	SELECT row_number() OVER (ORDER BY n) AS n, resource, owner, attempt, ttl, barge, metadata
	FROM asked
	WHERE NOT EXISTS (SELECT 1 FROM cur WHERE what = 'held') AND resource NOT IN (SELECT resource FROM cur)
), queued AS MATERIALIZED (
	SELECT wanted.resource FROM wanted CROSS JOIN LATERAL (SELECT owner, attempt FROM {waiters}
		WHERE resource = wanted.resource AND expires_at > clock_timestamp() ORDER BY number LIMIT 1) AS head
	WHERE NOT wanted.barge AND (head.owner <> wanted.owner OR head.attempt <> wanted.attempt)
		AND NOT EXISTS (SELECT 1 FROM {table} AS l
			WHERE l.resource = wanted.resource AND l.owner = wanted.owner AND l.expires_at > clock_timestamp())
), gate AS (
	SELECT n, pg_try_advisory_xact_lock({gate of wanted}) AS open FROM wanted
	WHERE n = 1 AND NOT EXISTS (SELECT 1 FROM queued)
	UNION ALL
	SELECT wanted.n, pg_try_advisory_xact_lock({gate of wanted}) FROM gate JOIN wanted ON wanted.n = gate.n + 1
	WHERE gate.open
), ins AS (
	INSERT INTO {table} AS l (resource, owner, token, attempt, acquired_at, expires_at, metadata)
	SELECT resource, owner, nextval({sequence}), attempt, t, t + ttl, metadata
	FROM wanted, clock_timestamp() AS t
	WHERE NOT EXISTS (SELECT 1 FROM queued) AND NOT EXISTS (SELECT 1 FROM gate WHERE NOT open) AND {durable}
	ORDER BY n
	ON CONFLICT (resource) DO UPDATE SET
		owner = excluded.owner, token = excluded.token, attempt = excluded.attempt, metadata = excluded.metadata,
		(acquired_at, expires_at) = (SELECT t, t + wanted.ttl FROM wanted, clock_timestamp() AS t
			WHERE wanted.resource = excluded.resource)
	WHERE l.expires_at <= clock_timestamp() OR (l.owner = excluded.owner AND l.attempt <> excluded.attempt)
	RETURNING 'granted' AS what, id, resource, owner, token, attempt, acquired_at, expires_at, metadata
), got AS MATERIALIZED (
	SELECT resource, owner, attempt FROM ins
	UNION ALL SELECT resource, asked.owner, asked.attempt FROM asked JOIN cur USING (resource) WHERE what = 'mine'
), served AS (
	DELETE FROM {waiters} WHERE number = ANY (ARRAY(SELECT ticket.number FROM got CROSS JOIN LATERAL (SELECT number FROM {waiters}
		WHERE attempt = got.attempt AND owner = got.owner AND resource = got.resource LIMIT 1) AS ticket))
)
SELECT what, id, resource, {columns}
FROM (SELECT what, id, resource, owner, token, acquired_at, expires_at, metadata FROM ins UNION ALL SELECT * FROM cur
	UNION ALL SELECT 'shut', 0, resource, '', 0, clock_timestamp(), clock_timestamp(), NULL
	FROM (SELECT resource FROM gate JOIN wanted USING (n) WHERE NOT open UNION ALL SELECT resource FROM queued) AS shut
) AS answer`
