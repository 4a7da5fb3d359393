package bunstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks"
)

// querier is what a statement runs on: under bun's handles lie a *sql.DB, a *sql.Conn or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// runner runs statements with placeholders, so that a driver can prepare each once, as pgx does. They are not prepared
// by database/sql: on pgdriver (1.2.18) a prepared statement whose context ends leaves its answer on the pooled
// connection, where the next statement reads it for its own. It goes to the *sql.DB under the
// bun.DB, since bun would write the arguments into the text, and could send a read to a replica.
type runner struct {
	db         *bun.DB
	hooks      []bun.QueryHook
	guardLimit time.Duration
	callLimit  time.Duration
	// channel is where this process hears whose turn it is, "" for nowhere, and wake tells its waiters, by their tickets:
	// what a statement frees needs to be announced only to other channels.
	channel string
	wake    func(ticket int64)
}

// query runs a statement and calls scan for each row, but for no more than most of them. Only nil means that it was
// carried out: an autocommitted statement can fail at its commit, after its rows came, and then the close of the rows
// tells, if it is asked. A Next that finds the end closes the rows itself and loses that error; so a statement that
// changes something is never read past the one row it has.
func (r runner) query(ctx context.Context, q querier, most int, scan func(*sql.Rows) error, statement string, args ...any) (err error) {
	if len(r.hooks) > 0 {
		event := &bun.QueryEvent{DB: r.db, Query: statement, QueryTemplate: statement, QueryArgs: args, StartTime: time.Now()}
		for _, hook := range r.hooks {
			ctx = hook.BeforeQuery(ctx, event)
		}
		defer func() {
			event.Err = err
			for i := len(r.hooks) - 1; i >= 0; i-- {
				r.hooks[i].AfterQuery(ctx, event)
			}
		}()
	}
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // the close that tells is the one at the end
	for n := 0; n < most && rows.Next(); n++ {
		if err := scan(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// row is one answer of a statement. All statements that tell of a lease answer in these columns: what (a word of the
// statement's, on SQLite the attempt), id, resource,
// owner, token, acquired_at, expires_at, remaining, metadata; times in microseconds, so that no session's time zone and
// no driver's time type has a say. One that has no owner is a group's.
type row struct {
	what string
	lock locks.Lock
}

func (r row) live() bool { return r.lock.Remaining > 0 }

func (r *row) scan(rows *sql.Rows) error {
	var acquired, expires, remaining int64
	var metadata sql.NullString
	l := &r.lock
	if err := rows.Scan(&r.what, &l.ID, &l.Resource, &l.Owner, &l.Token, &acquired, &expires, &remaining, &metadata); err != nil {
		return err
	}
	l.AcquiredAt, l.ExpiresAt = time.UnixMicro(acquired).UTC(), time.UnixMicro(expires).UTC()
	l.Remaining = time.Duration(remaining) * time.Microsecond
	switch {
	case l.Owner == "":
		l.Slots = slotsOf(metadata.String)
	case metadata.Valid:
		l.Metadata = json.RawMessage(metadata.String)
	}
	return nil
}

// one runs a statement that answers with at most one row; nil is none.
func (r runner) one(ctx context.Context, q querier, statement string, args ...any) (*row, error) {
	var answer *row
	err := r.query(ctx, q, 1, func(rows *sql.Rows) error {
		answer = new(row)
		return answer.scan(rows)
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// page runs a list's statement, which asks for one row more than the page has.
func (r runner) page(ctx context.Context, q querier, limit int, statement string, args ...any) (locks.Page, error) {
	page := locks.Page{Locks: make([]locks.Lock, 0, min(limit, 64))}
	err := r.query(ctx, q, limit+1, func(rows *sql.Rows) error {
		var found row
		if err := found.scan(rows); err != nil {
			return err
		}
		page.Locks = append(page.Locks, found.lock)
		return nil
	}, statement, args...)
	if err != nil {
		return locks.Page{}, err
	}
	if page.More = len(page.Locks) > limit; page.More {
		page.Locks = page.Locks[:limit]
	}
	return page, nil
}

// count runs a statement that answers with one number.
func (r runner) count(ctx context.Context, q querier, statement string, args ...any) (n int, err error) {
	err = r.query(ctx, q, 1, func(rows *sql.Rows) error { return rows.Scan(&n) }, statement, args...)
	return n, err
}

// metadataArg is the argument for a metadata column: text, or NULL.
func metadataArg(metadata json.RawMessage) any {
	if metadata == nil {
		return nil
	}
	return string(metadata)
}

// after returns the least text that follows every text with the prefix, in byte order, or "" when there is none. It
// counts the last code point up, which for UTF-8 is the same order, so that the result is valid UTF-8 as PostgreSQL
// demands. A range is what an index on bytes can do; LIKE would take %, _ and, on SQLite, other cases for matches.
func after(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch next := runes[i] + 1; {
		case next == 0xD800: // surrogates are no code points of UTF-8
			return string(append(runes[:i], 0xE000))
		case next <= 0x10FFFF:
			return string(append(runes[:i], next))
		}
	}
	return ""
}
