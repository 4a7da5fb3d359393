package optimistic

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/model"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
)

// write is one write at a version in the making.
type write struct {
	config
	db      bun.IDB
	model   any
	row     model.Row
	fields  []*schema.Field
	version *schema.Field
	read    int64 // the struct's version
	next    int64 // what it becomes
}

func newWrite(db bun.IDB, m any, options []Option) (*write, error) {
	if err := transaction.Usable(db); err != nil {
		return nil, err
	}
	w := &write{config: config{versionColumn: DefaultVersionColumn}, db: db, model: m}
	for _, option := range options {
		if err := option(&w.config); err != nil {
			return nil, err
		}
	}
	var err error
	if w.row, err = model.RowOf(db.Dialect(), m); err != nil {
		return nil, err
	}
	if err = w.row.HasKey(); err != nil {
		return nil, err
	}
	if w.version, err = w.row.Column(w.versionColumn); err != nil {
		return nil, err
	}
	if err = w.readVersion(); err != nil {
		return nil, err
	}
	w.fields, err = w.config.fields(w.row)
	return w, err
}

func (w *write) readVersion() error {
	value, err := w.row.Struct.FieldByIndexErr(w.version.Index)
	switch {
	case err != nil:
		return model.Invalid("must have read its version: the struct with it is nil")
	case w.version.IsPK:
		return model.Invalid(fmt.Sprintf("must not have its version %q in the primary key", w.versionColumn))
	case value.CanInt():
		w.read = value.Int()
	case value.CanUint() && value.Uint() <= math.MaxInt64:
		w.read = int64(value.Uint())
	default:
		return model.Invalid(fmt.Sprintf("must have an integer of at most 63 bits in %q, got %v of type %s", w.versionColumn, value, value.Type()))
	}
	w.next = w.read
	return nil
}

// countUp refuses the largest version that the field can have.
func (w *write) countUp() error {
	value := w.row.Struct.FieldByIndex(w.version.Index)
	if w.read == math.MaxInt64 || value.CanInt() && value.OverflowInt(w.read+1) || value.CanUint() && value.OverflowUint(uint64(w.read+1)) {
		return model.Invalid(fmt.Sprintf("must have a version that can be counted up, got %d in a field of type %s", w.read, value.Type()))
	}
	w.next = w.read + 1
	return nil
}

// run executes the statement; where it wrote no row, it looks for the reason.
func (w *write) run(ctx context.Context, what string, statement func(context.Context) (sql.Result, error)) error {
	restore := snapshot(w.row)
	written := false
	defer func() {
		if !written { // after a panic in a hook, too
			restore()
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
		return w.refusal(ctx, what)
	case 1:
		written = true
		w.setVersion()
		return nil
	default:
		return model.Invalid(fmt.Sprintf("must name one row by its primary key: %d rows of %s were written", n, w.row.Table.Name))
	}
}

func (w *write) setVersion() {
	if value := w.version.Value(w.row.Struct); value.CanInt() {
		value.SetInt(w.next)
	} else {
		value.SetUint(uint64(w.next))
	}
}

// refusal tells why no row was written. The answer is never a replica's.
func (w *write) refusal(ctx context.Context, what string) error {
	look := w.db.NewSelect()
	if db, ok := w.db.(*bun.DB); ok {
		look = look.Conn(db)
	}
	var current int64
	err := look.Model(w.model).ColumnExpr("coalesce(?, 0)", w.version.SQLName).WherePK().Scan(ctx, &current)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w in %s", ErrNotFound, w.row.Table.Name)
	case err != nil:
		return dberror.Wrap(ctx, what+": nothing was written; look why", err)
	}
	return &ConflictError{Table: w.row.Table.Name, Read: w.read, Current: current}
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
