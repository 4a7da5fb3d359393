package fence

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/locks"
)

// write is one fenced write in the making. Its guard is the token's column.
type write struct {
	model.Target
	fields     []*schema.Field
	sets       []expression
	tokenField *schema.Field // nil: the model has none
	token      int64
}

func newWrite(db bun.IDB, m any, token int64, options []Option) (*write, error) {
	c := config{tokenColumn: DefaultTokenColumn}
	for _, option := range options {
		if option == nil {
			return nil, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(&c); err != nil {
			return nil, err
		}
	}
	if err := locks.ValidateToken(token); err != nil {
		return nil, err
	}
	if model.IsSlice(m) {
		return nil, model.Invalid("must be one row: several are not all or nothing, write each in a transaction")
	}
	target, err := model.TargetOf(db, m, c.tokenColumn)
	if err != nil {
		return nil, err
	}
	w := &write{Target: target, sets: c.sets, token: token}
	if w.tokenField, err = w.findTokenField(); err != nil {
		return nil, err
	}
	if c.columns != nil || c.sets == nil {
		w.fields, err = w.Fields(c.columns)
	}
	return w, err
}

// findTokenField returns the model's field for the token, nil where it has none.
func (w *write) findTokenField() (*schema.Field, error) {
	if !w.Table.HasField(w.Guard) {
		return nil, nil //nolint:nilnil // a model without the field is as good
	}
	field, err := w.Column(w.Guard)
	if err != nil {
		return nil, model.Invalid(fmt.Sprintf("must write the token to its column %q, which is scanonly or another name for one", w.Guard))
	}
	kind := field.IndirectType.Kind()
	scans := reflect.PointerTo(field.IndirectType).Implements(reflect.TypeFor[sql.Scanner]())
	if field.IsPK || !scans && kind != reflect.Int64 && kind != reflect.Int && kind != reflect.Uint64 {
		return nil, model.Invalid(fmt.Sprintf("must keep the token in a column of 64 bits, and %q is none", w.Guard))
	}
	if _, err := w.Struct.FieldByIndexErr(field.Index); err != nil {
		return nil, model.Invalid("must have a field for its token: the struct with it is nil")
	}
	return field, nil
}

const what = "fence: write"

// run executes the statement; where it wrote no row, it looks for the reason, also at a soft-deleted row if deleted says
// so.
func (w *write) run(ctx context.Context, statement func(context.Context) (sql.Result, error), deleted bool) error {
	putBack, err := w.putToken()
	if err != nil {
		return err
	}
	written := false
	defer func() {
		if !written { // after a panic in a hook, too
			putBack()
		}
	}()
	if written, err = w.Write(ctx, what, statement); err != nil || written {
		return err
	}
	return w.refusal(ctx, deleted)
}

// putToken sets the model's field to the token, through a new pointer where it is one.
func (w *write) putToken() (putBack func(), err error) {
	if w.tokenField == nil {
		return func() {}, nil
	}
	value := w.tokenField.Value(w.Struct)
	before := reflect.New(value.Type()).Elem()
	before.Set(value)
	putBack = func() { value.Set(before) }
	value.SetZero()
	if err := w.tokenField.ScanValue(w.Struct, w.token); err != nil {
		putBack()
		return nil, model.Invalid(fmt.Sprintf("must take a token in its column %q: %v", w.Guard, err))
	}
	return putBack, nil
}

// refusal tells why no row was written.
func (w *write) refusal(ctx context.Context, deleted bool) error {
	table := w.Table.Name
	stored, found, err := w.GuardNow(ctx, what, deleted)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w in %s", ErrNotFound, table)
	case stored > w.token:
		return &StaleError{Table: table, Token: w.token, Stored: stored}
	}
	return fmt.Errorf("fence: the row of %s changed after it was refused: %w", table, locks.ErrRetryable)
}
