package optimistic

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// Update writes the model to its row if the row still has the struct's version, and counts the version up, in the row
// and in the struct. The model is a pointer to a struct with its primary key set, db a *bun.DB, bun.Tx or bun.Conn. One
// round trip, and one more to tell what a refusal was about. The model's hooks run as with bun.
//
// On an error every column's field of the struct is what it was, whatever hooks did to it (but not what a slice, map or
// pointer in it leads to). In a transaction that is rolled back afterwards the struct is ahead of the row: read it again.
//
// Errors: [*ConflictError] (another version), [ErrNotFound] (no such row), [locks.ErrSerialization] (another
// transaction's write came between, under REPEATABLE READ and above: PostgreSQL documentation, chapter 13.2),
// [locks.ErrBusy], [locks.ErrStaleSnapshot] (SQLite), [*locks.InvalidError]: with each of them nothing was written. After
// any other, a context's end included, the write may have happened, and a second try then conflicts with the first:
// read again. One of those says that several rows were written, since the model's primary key is not the table's: roll
// back. In a transaction that is REPEATABLE READ or above a retry needs a new transaction.
//
// Safe for concurrent use, each call with a struct of its own.
func Update(ctx context.Context, db bun.IDB, model any, options ...Option) error {
	w, err := newWrite(db, model, options)
	if err != nil {
		return err
	}
	if err := w.countUp(); err != nil {
		return err
	}
	return w.run(ctx, "optimistic: update", w.update)
}

// Delete removes the row if it still has the struct's version, under the conditions and with the errors of [Update]. A
// model with bun's soft_delete is marked as deleted, by the same rule; that leaves the version, in the row and in the
// struct.
func Delete(ctx context.Context, db bun.IDB, model any, options ...Option) error {
	w, err := newWrite(db, model, options)
	if err != nil {
		return err
	}
	return w.run(ctx, "optimistic: delete", w.delete)
}

// update is one statement, so that nothing comes between the comparison and the write:
//
//	UPDATE accounts SET balance = …, version = 4 WHERE coalesce(version, 0) = 3 AND id = …
func (w *write) update(ctx context.Context) (sql.Result, error) {
	q := w.DB.NewUpdate().Model(w.Model)
	for _, field := range w.fields {
		q.Column(field.Name)
	}
	version := bun.Name(w.Guard)
	return q.Set("? = ?", version, w.next).Where(sameVersion, version, w.read).WherePK().Exec(ctx)
}

func (w *write) delete(ctx context.Context) (sql.Result, error) {
	return w.DB.NewDelete().Model(w.Model).Where(sameVersion, bun.Name(w.Guard), w.read).WherePK().Exec(ctx)
}

const sameVersion = "coalesce(?, 0) = ?"
