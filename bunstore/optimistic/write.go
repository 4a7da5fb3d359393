package optimistic

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/locks"
)

// write is one write at a version in the making. Its guard is the version's column.
type write struct {
	model.Target
	fields  []*schema.Field
	version *schema.Field
	read    int64 // the struct's version
	next    int64 // what it becomes
}

func newWrite(db bun.IDB, m any, options []Option) (*write, error) {
	c := config{versionColumn: DefaultVersionColumn}
	for _, option := range options {
		if option == nil {
			return nil, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(&c); err != nil {
			return nil, err
		}
	}
	target, err := model.TargetOf(db, m, c.versionColumn)
	if err != nil {
		return nil, err
	}
	w := &write{Target: target}
	if w.version, err = w.Column(w.Guard); err != nil {
		return nil, err
	}
	if err = w.readVersion(); err != nil {
		return nil, err
	}
	w.fields, err = w.Fields(c.columns)
	return w, err
}

func (w *write) readVersion() error {
	value, err := w.Struct.FieldByIndexErr(w.version.Index)
	switch {
	case err != nil:
		return model.Invalid("must have read its version: the struct with it is nil")
	case w.version.IsPK:
		return model.Invalid(fmt.Sprintf("must not have its version %q in the primary key", w.Guard))
	case value.CanInt():
		w.read = value.Int()
	case value.CanUint() && value.Uint() <= math.MaxInt64:
		w.read = int64(value.Uint())
	default:
		return model.Invalid(fmt.Sprintf("must have an integer of at most 63 bits in %q, got %v of type %s", w.Guard, value, value.Type()))
	}
	w.next = w.read
	return nil
}

// countUp refuses the largest version that the field can have.
func (w *write) countUp() error {
	value := w.Struct.FieldByIndex(w.version.Index)
	if w.read == math.MaxInt64 || value.CanInt() && value.OverflowInt(w.read+1) || value.CanUint() && value.OverflowUint(uint64(w.read+1)) {
		return model.Invalid(fmt.Sprintf("must have a version that can be counted up, got %d in a field of type %s", w.read, value.Type()))
	}
	w.next = w.read + 1
	return nil
}

// run executes the statement; where it wrote no row, it looks for the reason.
func (w *write) run(ctx context.Context, what string, statement func(context.Context) (sql.Result, error)) (err error) {
	restore := snapshot(w.Row)
	written := false
	defer func() {
		if !written { // after a panic in a hook, too
			restore()
		}
	}()
	if written, err = w.Write(ctx, what, statement); err != nil {
		return err
	}
	if !written {
		return w.refusal(ctx, what)
	}
	w.setVersion()
	return nil
}

func (w *write) setVersion() {
	if value := w.version.Value(w.Struct); value.CanInt() {
		value.SetInt(w.next)
	} else {
		value.SetUint(uint64(w.next))
	}
}

// refusal tells why no row was written.
func (w *write) refusal(ctx context.Context, what string) error {
	current, found, err := w.GuardNow(ctx, what, false)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%w in %s", ErrNotFound, w.Table.Name)
	}
	return &ConflictError{Table: w.Table.Name, Read: w.read, Current: current}
}

// snapshot keeps the columns' fields. A field in a nil embedded struct has no value yet, and is zero again afterwards.
func snapshot(row model.Row) (restore func()) {
	fields := row.Table.Fields
	values := make([]reflect.Value, len(fields))
	for i, field := range fields {
		if value, err := row.Struct.FieldByIndexErr(field.Index); err == nil {
			values[i] = reflect.New(value.Type()).Elem()
			values[i].Set(value)
		}
	}
	return func() {
		for i, field := range fields {
			value, err := row.Struct.FieldByIndexErr(field.Index)
			switch {
			case err != nil:
			case values[i].IsValid():
				value.Set(values[i])
			default:
				value.SetZero()
			}
		}
	}
}
