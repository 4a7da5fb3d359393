package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/locks"
)

// Upsert is [Update] for a row that may not exist yet: it inserts the model with the token, or writes to the row that
// has its primary key already, if no newer token is stored there. The key is the model's primary key, of which the
// database must not make up any part. An insert writes every column, [WithColumns] and [WithSet] are for the row that is
// there. Values that the database fills in are not read back into the struct. A deleted row has forgotten its token: an
// upsert with an old one creates it again.
//
// A row that is soft-deleted is there, and is written. Errors as with [Update], but never [ErrNotFound].
func Upsert(ctx context.Context, db bun.IDB, model any, token int64, options ...Option) error {
	w, err := newWrite(db, model, token, options)
	if err != nil {
		return err
	}
	if err := w.insertable(); err != nil {
		return err
	}
	err = w.run(ctx, w.upsert, true)
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("fence: the row of %s was deleted after it had refused: %w", w.Table.Name, locks.ErrRetryable)
	}
	return err
}

// insertable refuses a key of which the database fills in a part, so that every call would insert another row, and a
// column that bun takes for a qualified name when it inserts.
func (w *write) insertable() error {
	for _, key := range w.Table.PKs {
		filled := key.HasZeroValue(w.Struct) && (key.NullZero || key.Identity || key.SQLDefault != "")
		if filled || string(key.AppendValue(schema.NewQueryGen(w.DB.Dialect()), nil, w.Struct)) == "NULL" {
			return model.Invalid(fmt.Sprintf("must have all of its primary key set, and %q is left to the database", key.Name))
		}
	}
	if strings.Contains(w.Guard, ".") {
		reason := fmt.Sprintf("must not have a dot in its name for an insert, got %q", w.Guard)
		return &locks.InvalidError{Field: "token column", Reason: reason}
	}
	return nil
}

// upsert is one statement:
//
//	INSERT INTO accounts AS account (id, balance, fence_token) VALUES (…, …, 7)
//	ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance, fence_token = 7 WHERE coalesce(account.fence_token, 0) <= 7
//
// Without RETURNING, which bun would add for columns with a default: rows that have arrived are no proof of the commit.
func (w *write) upsert(ctx context.Context) (sql.Result, error) {
	table, column := w.Table, bun.Name(w.Guard)
	key := make([]string, len(table.PKs))
	for i, field := range table.PKs {
		key[i] = string(field.SQLName)
	}
	q := w.DB.NewInsert().Model(w.Model).Returning("NULL").On("CONFLICT (?) DO UPDATE", bun.Safe(strings.Join(key, ", ")))
	if w.tokenField == nil {
		q.Value(w.Guard, "?", w.token)
	}
	for _, field := range w.fields {
		q.Set("? = EXCLUDED.?", field.SQLName, field.SQLName)
	}
	for _, set := range w.sets {
		q.Set(set.query, set.args...)
	}
	return q.Set("? = ?", column, w.token).Where("coalesce(?.?, 0) <= ?", table.SQLAlias, column, w.token).Exec(ctx)
}
