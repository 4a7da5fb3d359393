package model

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// Target is the one row, named by its primary key, that is written only as long as one of its columns, the guard, allows.
type Target struct {
	Row
	DB    bun.IDB
	Model any
	Guard string // its SQL name, which may contain a dot: bun.Name quotes it
}

// TargetOf looks at what is to be written where. Errors: an [*locks.InvalidError] for the db or the model.
func TargetOf(db bun.IDB, model any, guard string) (Target, error) {
	if err := transaction.Usable(db); err != nil {
		return Target{}, err
	}
	row, err := RowOf(db.Dialect(), model)
	if err != nil {
		return Target{}, err
	}
	return Target{Row: row, DB: db, Model: model, Guard: guard}, row.HasKey()
}

// Fields are the columns of these names; without names all but the primary key, the guard and those with skipupdate,
// which nobody may name. Errors: an [*locks.InvalidError] for the columns, or the model that has them not.
func (t Target) Fields(names []string) ([]*schema.Field, error) {
	var fields []*schema.Field
	if names == nil {
		for _, field := range t.Table.DataFields {
			if t.writable(field) {
				fields = append(fields, field)
			}
		}
		return fields, nil
	}
	for _, name := range names {
		field, err := t.Column(name)
		reason := ""
		switch {
		case err != nil:
			return nil, err
		case !t.writable(field):
			reason = fmt.Sprintf("must not name the primary key, %q or a column with skipupdate, got %q", t.Guard, name)
		case slices.Contains(fields, field):
			reason = fmt.Sprintf("must name each one once, got %q twice", name)
		}
		if reason != "" {
			return nil, &locks.InvalidError{Field: "columns", Reason: reason}
		}
		fields = append(fields, field)
	}
	return fields, nil
}

func (t Target) writable(field *schema.Field) bool {
	return !field.IsPK && field.Name != t.Guard && !field.SkipUpdate()
}

// Write executes the statement that writes the row, and reports whether it did. Several rows are an error of no kind:
// they have been written, and nothing may be said to a caller that promises otherwise.
func (t Target) Write(ctx context.Context, what string, statement func(context.Context) (sql.Result, error)) (bool, error) {
	result, err := statement(ctx)
	if err != nil {
		return false, dberror.Wrap(ctx, what, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, dberror.Wrap(ctx, what, err)
	}
	if n > 1 {
		return false, fmt.Errorf("%s: %d rows of %s were written: the model's primary key is not unique there; roll back", what, n, t.Table.Name)
	}
	return n == 1, nil
}

// GuardNow reads the guard, 0 for NULL, after a refusal; found is false where there is no such row. One that is
// soft-deleted counts only if deleted says so. The answer is never a replica's.
func (t Target) GuardNow(ctx context.Context, what string, deleted bool) (value int64, found bool, err error) {
	q := t.DB.NewSelect().Model(t.Model)
	if _, _, err := transaction.Of(t.DB); err != nil { // a database, whose resolver would choose the connection
		q.Conn(t.DB)
	}
	if deleted && t.Table.SoftDeleteField != nil {
		q.WhereAllWithDeleted()
	}
	err = q.ColumnExpr("coalesce(?, 0)", bun.Name(t.Guard)).WherePK().Scan(ctx, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return value, err == nil, dberror.Wrap(ctx, what+": nothing was written; look why", err)
}
