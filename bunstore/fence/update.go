package fence

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// Update writes the model to its row, together with the token, if no newer token is stored there. The model is a pointer
// to a struct with its primary key set, db a *bun.DB, bun.Tx or bun.Conn of the database that has the row. One round
// trip, and one more to tell what a refusal was about. On success a field of the model for the token's column has the
// token; otherwise it keeps its value. What the model's hooks did to the struct stays, as with bun.
//
// Errors: [*StaleError] (a newer token is stored), [ErrNotFound] (no such row), [locks.ErrSerialization] (another
// transaction's write came between, under REPEATABLE READ and above), [locks.ErrBusy], [*locks.InvalidError]: with each
// of them nothing was written. After any other, a context's end included, the write may have happened: repeat it. One of
// those says that several rows were written, since the model's primary key is not the table's: roll back.
//
// Safe for concurrent use, each call with a model of its own.
func Update(ctx context.Context, db bun.IDB, model any, token int64, options ...Option) error {
	w, err := newWrite(db, model, token, options)
	if err != nil {
		return err
	}
	return w.run(ctx, w.update, false)
}

// Advance stores the token and nothing else, under the conditions and with the errors of [Update]. When it has returned
// nil, no write with an older token can reach that row: a new holder calls it before it reads what its predecessors have
// left. Inside a transaction that holds from the commit on, and until then they wait.
func Advance(ctx context.Context, db bun.IDB, model any, token int64, options ...Option) error {
	w, err := newWrite(db, model, token, options)
	if err != nil {
		return err
	}
	w.fields, w.sets = nil, nil
	return w.run(ctx, w.update, false)
}

// update is one statement, so that nothing comes between the check and the write:
//
//	UPDATE accounts SET balance = …, fence_token = 7 WHERE coalesce(fence_token, 0) <= 7 AND id = …
//
// The token's column comes last: where a caller sets it too, SQLite takes the last one and PostgreSQL refuses.
func (w *write) update(ctx context.Context) (sql.Result, error) {
	q := w.DB.NewUpdate().Model(w.Model)
	for _, field := range w.fields {
		q.Column(field.Name)
	}
	for _, set := range w.sets {
		q.Set(set.query, set.args...)
	}
	column := bun.Name(w.Guard)
	return q.Set("? = ?", column, w.token).Where("coalesce(?, 0) <= ?", column, w.token).WherePK().Exec(ctx)
}
