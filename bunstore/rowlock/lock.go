package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/locks"
)

// Lock locks the row that has the model's primary key, and reads it into the model. The model is a pointer to a struct
// with its key set; a row that bun's soft delete hides is not there. Under READ COMMITTED what it reads is the newest
// committed version, after a wait too; under the stricter levels a row that was changed after the snapshot is
// [locks.ErrSerialization]. It locks with [ForUpdate] and waits up to [DefaultLimit] unless the options say otherwise.
// When the row is held or not there the model is as it was. Errors: see the package.
func Lock(ctx context.Context, tx bun.IDB, row any, options ...Option) error {
	c, err := newCall(tx, options)
	if err != nil {
		return err
	}
	query, err := c.byKey(row)
	if err != nil {
		return err
	}
	return c.lock(ctx, query.GetTableName(), func(ctx context.Context) error {
		err := query.Scan(ctx)
		if c.policy != skipLocked || !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		there, lookErr := c.tx.NewSelect().Model(row).WherePK().Exists(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case there:
			return &HeldError{Table: query.GetTableName()}
		}
		return err
	})
}

// Condition says on bun's query, which has its model already, which rows, in which order and how many; it returns the
// query that it was given. The locking clause comes after it.
type Condition = func(*bun.SelectQuery) *bun.SelectQuery

// LockRows locks the rows that the condition selects, and reads them into rows, a pointer to a slice of structs or of
// pointers to structs. None is no error.
//
//	var jobs []Job
//	err := rowlock.LockRows(ctx, tx, &jobs, func(q *bun.SelectQuery) *bun.SelectQuery {
//		return q.Where("state = 'ready'").Order("id").Limit(10)
//	}, rowlock.SkipLocked())
//
// It locks all of them or, on an error, none; the slice is then empty or, where the database was not asked for the rows,
// as it was. Only the model's table is locked, no joined one. Give an order, so that two such calls cannot deadlock, and see that an index serves the condition: [CheckPlan].
//
// Under READ COMMITTED a row that was changed while the call waited is looked at again, and left out if the condition
// no longer holds: fewer rows than the query's limit may come, and in the order of what they were before. The strength,
// the wait and the errors are those of [Lock]; a nil condition, or one that returns another query, is an
// [*locks.InvalidError].
func LockRows(ctx context.Context, tx bun.IDB, rows any, condition Condition, options ...Option) error {
	c, err := newCall(tx, options)
	if err != nil {
		return err
	}
	query, err := c.byCondition(rows, condition)
	if err != nil {
		return err
	}
	asked := false
	err = c.lock(ctx, query.GetTableName(), func(ctx context.Context) error {
		asked = true
		return query.Scan(ctx)
	})
	if err != nil && asked {
		reflect.ValueOf(rows).Elem().SetLen(0) // some may have come before the one that was refused
	}
	return err
}

func (c call) byKey(row any) (*bun.SelectQuery, error) {
	r, err := model.RowOf(c.tx.Dialect(), row)
	if err == nil {
		err = r.HasKey()
	}
	if err != nil {
		return nil, err
	}
	return c.tx.NewSelect().Model(row).WherePK().For(c.clause()), nil
}

func (c call) byCondition(rows any, condition Condition) (*bun.SelectQuery, error) {
	if _, err := model.SliceOf(c.tx.Dialect(), rows); err != nil {
		return nil, err
	}
	const field = "condition"
	if condition == nil {
		return nil, &locks.InvalidError{Field: field, Reason: "must not be nil: it would lock the whole table"}
	}
	query := c.tx.NewSelect().Model(rows)
	if condition(query) != query {
		return nil, &locks.InvalidError{Field: field, Reason: "must return the query that it was given"}
	}
	return query.Conn(c.conn).For(c.clause()), nil // also where the condition has set another connection, or clause
}
