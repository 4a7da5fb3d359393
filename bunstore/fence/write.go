package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
)

// write is one fenced write in the making.
type write struct {
	config
	db         bun.IDB
	model      any
	row        model.Row
	fields     []*schema.Field
	tokenField *schema.Field // nil: the model has none
	token      int64
}

func newWrite(db bun.IDB, m any, token int64, options []Option) (*write, error) {
	if err := transaction.Usable(db); err != nil {
		return nil, err
	}
	w := &write{config: config{tokenColumn: DefaultTokenColumn}, db: db, model: m, token: token}
	for _, option := range options {
		if err := option(&w.config); err != nil {
			return nil, err
		}
	}
	if err := locks.ValidateToken(token); err != nil {
		return nil, err
	}
	if model.IsSlice(m) {
		return nil, model.Invalid("must be one row: several are not all or nothing, write each in a transaction")
	}
	var err error
	if w.row, err = model.RowOf(db.Dialect(), m); err != nil {
		return nil, err
	}
	if err = w.row.HasKey(); err != nil {
		return nil, err
	}
	if w.tokenField, err = w.findTokenField(); err != nil {
		return nil, err
	}
	w.fields, err = w.config.fields(w.row)
	return w, err
}

// findTokenField returns the model's field for the token, nil where it has none.
func (w *write) findTokenField() (*schema.Field, error) {
	field, err := w.row.Column(w.tokenColumn)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // a model without the field is as good
	}
	kind := field.IndirectType.Kind()
	scans := reflect.PointerTo(field.IndirectType).Implements(reflect.TypeFor[sql.Scanner]())
	if field.IsPK || !scans && kind != reflect.Int64 && kind != reflect.Int && kind != reflect.Uint64 {
		return nil, model.Invalid(fmt.Sprintf("must keep the token in a column of 64 bits, and %q is none", w.tokenColumn))
	}
	return field, nil
}

// run executes the statement; where it wrote no row, look finds out why.
func (w *write) run(ctx context.Context, statement func(context.Context) (sql.Result, error), look *bun.SelectQuery) error {
	const what = "fence: write"
	putBack, err := w.putToken()
	if err != nil {
		return err
	}
	written := false
	defer func() {
		if !written {
			putBack()
		}
	}()
	result, err := statement(ctx)
	if err != nil {
		return dberror.Wrap(ctx, what, err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return dberror.Wrap(ctx, what, err)
	}
	switch n {
	case 0:
		return w.refusal(ctx, look)
	case 1:
		written = true
		return nil
	default:
		return model.Invalid(fmt.Sprintf("must name one row by its primary key: %d rows of %s were written", n, w.row.Table.Name))
	}
}

// putToken sets the model's field to the token, through a new pointer where it is one.
func (w *write) putToken() (putBack func(), err error) {
	if w.tokenField == nil {
		return func() {}, nil
	}
	value := w.tokenField.Value(w.row.Struct)
	before := reflect.New(value.Type()).Elem()
	before.Set(value)
	putBack = func() { value.Set(before) }
	value.SetZero()
	if err := w.tokenField.ScanValue(w.row.Struct, w.token); err != nil {
		putBack()
		return nil, model.Invalid(fmt.Sprintf("must take a token in its column %q: %v", w.tokenColumn, err))
	}
	return putBack, nil
}

// refusal tells why no row was written. The answer is never a replica's.
func (w *write) refusal(ctx context.Context, look *bun.SelectQuery) error {
	if db, ok := w.db.(*bun.DB); ok {
		look = look.Conn(db)
	}
	table := w.row.Table.Name
	var stored int64
	err := look.Model(w.model).ColumnExpr("coalesce(?, 0)", bun.Ident(w.tokenColumn)).WherePK().Scan(ctx, &stored)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w in %s", ErrNotFound, table)
	case err != nil:
		return dberror.Wrap(ctx, "fence: nothing was written; look why", err)
	case stored > w.token:
		return &StaleError{Table: table, Token: w.token, Stored: stored}
	}
	return fmt.Errorf("fence: the row of %s changed after it was refused: %w", table, locks.ErrRetryable)
}
