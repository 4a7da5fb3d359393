package bunstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// acquireShare looks first, and refuses on what it saw, so that a refusal neither writes nor waits. What is granted is granted
// behind the share gate, on conditions that the statement looks at itself.
func (p postgres) acquireShare(ctx context.Context, request locks.Request) (locks.Lock, error) {
	kind, most := slotsArg(request.Slots), mostArg(request.Slots)
	over := false
	for range maxAsks {
		var stood shareStood
		err := p.query(ctx, p.db.DB, 4, func(rows *sql.Rows) error {
			answer := new(row)
			err := answer.scan(rows)
			stood.add(answer)
			return err
		}, p.sql.shareStood, request.Resource, request.Owner, request.Attempt, most)
		if err != nil {
			return locks.Lock{}, err
		}
		found, err := stood.settle(request)
		if err != nil {
			return locks.Lock{}, err
		}
		if found != nil {
			if p.waiting.has(request) { // its ticket was drawn by a retry that came after the grant
				next, err := p.dequeue(ctx, request.Resource, request.Owner, request.Attempt)
				if err != nil {
					return locks.Lock{}, err
				}
				p.wake(next)
			}
			return *found, nil
		}
		statement := p.sql.shareJoin
		if stood.lease == nil {
			statement = p.sql.shareBegin
		}
		answer, err := p.askShares(ctx, request.Resource, statement, request.Resource, request.Owner, request.TTL.Microseconds(),
			metadataArg(request.Metadata), request.Attempt, kind, most, request.Barge)
		switch {
		case err != nil:
			return locks.Lock{}, err
		case answer == nil: // somebody was faster; a new look mostly tells who
			over = false
		case !answer.live(): // over before it was told
			over = true
		default:
			answer.lock.Slots = request.Slots
			if p.waiting.has(request) { // one that waits behind it may have come before the commit, and seen its ticket
				answer.what = "awaited"
			}
			p.freed(ctx, answer) // as after a release: there may be room for the next one
			return answer.lock, nil
		}
	}
	if over {
		return locks.Lock{}, fmt.Errorf("the share was over before it was granted")
	}
	return locks.Lock{}, locks.Held(request.Resource, nil)
}

// askShares runs one statement behind the resource's share gate, and has it committed where it did something.
func (p postgres) askShares(ctx context.Context, resource, statement string, args ...any) (answer *row, err error) {
	err = p.readCommitted(ctx, func(q querier) (bool, error) {
		err := p.query(ctx, q, 1, func(rows *sql.Rows) error {
			var set bool
			return rows.Scan(&set)
		}, p.sql.shareGate, resource)
		if err == nil {
			answer, err = p.one(ctx, q, statement, args...)
		}
		return err == nil && answer != nil && answer.what != "seen", err
	})
	if err != nil {
		return nil, err
	}
	if answer != nil && answer.what == "released" { // who came between the statement and its commit was refused, and is to be told
		answer.what = "awaited"
	}
	return answer, nil
}

func (p postgres) holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error) {
	return p.sharesOf(ctx, p.db.DB, limit, p.sql.holders, resource, limit)
}

// releaseShareAttempt releases the share that the attempt was granted; nil where there is none.
func (p postgres) releaseShareAttempt(ctx context.Context, resource, owner, attempt string) (*row, error) {
	group, err := p.one(ctx, p.db.DB, p.sql.get, resource)
	if err != nil || group == nil || group.lock.Owner != "" {
		return nil, err
	}
	answer, err := p.askShares(ctx, resource, p.sql.shareReleaseAttempt, resource, owner, attempt)
	if answer != nil && answer.what == "seen" && !answer.live() {
		return nil, err
	}
	return answer, err
}

// forceReleaseShare releases the share with that token in a group of those slots, whosever it is.
func (p postgres) forceReleaseShare(ctx context.Context, resource string, token int64, slots int) (lock locks.Lock, settled bool, err error) {
	var owner string
	err = p.query(ctx, p.db.DB, 1, func(rows *sql.Rows) error { return rows.Scan(&owner) }, p.sql.shareOf, resource, token)
	if err != nil {
		return lock, true, err
	}
	var answer *row
	if owner != "" {
		if answer, err = p.askShares(ctx, resource, p.sql.shareForceRelease, resource, owner, token); err != nil {
			return lock, true, err
		}
	}
	switch {
	case answer == nil || answer.what == "seen" && (answer.lock.Token != token || !answer.live()):
		return lock, true, anotherGrant(resource, token)
	case answer.what == "seen": // guarded
		return lock, false, nil
	}
	p.freed(ctx, answer)
	answer.lock.Slots = slots
	return answer.lock, true, nil
}

// lookAtShares looks at the tickets of those who wait for shares.
func (p postgres) lookAtShares(ctx context.Context, tickets []waitqueue.Ticket) ([]waitqueue.Sight, error) {
	type ticket struct {
		Resource string `json:"resource"`
		Number   int64  `json:"number"`
		Kind     string `json:"kind"`
		Most     int    `json:"most"`
	}
	asked := make([]ticket, len(tickets))
	for i, t := range tickets {
		asked[i] = ticket{t.Resource, t.Number, slotsArg(t.Slots), mostArg(t.Slots)}
	}
	return p.sights(ctx, len(tickets), p.sql.shareLook, asked)
}

// sights runs a statement that looks at tickets.
func (p postgres) sights(ctx context.Context, most int, statement string, asked any) ([]waitqueue.Sight, error) {
	if most == 0 {
		return nil, nil
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	sights := make([]waitqueue.Sight, 0, most)
	err = p.query(ctx, p.db.DB, most, func(rows *sql.Rows) error {
		sight, err := scanSight(rows)
		sights = append(sights, sight)
		return err
	}, statement, string(text))
	return sights, err
}
