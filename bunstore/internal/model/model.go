// Package model looks at the host's own bun models: their table, primary key and columns.
package model

import (
	"database/sql"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/locks"
)

// Row is a model that stands for one row: a pointer to a struct whose type has a primary key.
type Row struct {
	Table  *schema.Table
	Struct reflect.Value // addressable
}

// RowOf looks at a pointer to a struct. Errors: an [*locks.InvalidError] for the model.
func RowOf(dialect schema.Dialect, model any) (Row, error) {
	v, err := pointedAt(model)
	if err != nil {
		return Row{}, err
	}
	if v.Kind() != reflect.Struct {
		return Row{}, Invalid(fmt.Sprintf("must be a pointer to a struct, got %T", model))
	}
	table, err := tableOf(dialect, v.Type())
	return Row{Table: table, Struct: v}, err
}

// SliceOf looks at a pointer to a slice of structs, or of pointers to structs, and returns the table of one. Errors: an
// [*locks.InvalidError] for the model.
func SliceOf(dialect schema.Dialect, model any) (*schema.Table, error) {
	v, err := pointedAt(model)
	if err != nil {
		return nil, err
	}
	if v.Kind() != reflect.Slice {
		return nil, Invalid(fmt.Sprintf("must be a pointer to a slice, got %T", model))
	}
	element := v.Type().Elem()
	if element.Kind() == reflect.Pointer {
		element = element.Elem()
	}
	if element.Kind() != reflect.Struct {
		return nil, Invalid(fmt.Sprintf("must be a pointer to a slice of structs, got %T", model))
	}
	return tableOf(dialect, element)
}

// IsSlice reports whether the model is a pointer to a slice.
func IsSlice(model any) bool {
	t := reflect.TypeOf(model)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Slice
}

// HasKey returns nil when the primary key is set. All of it zero is not: a row that was never stored. Errors: an
// [*locks.InvalidError] for the model.
func (r Row) HasKey() error {
	for _, key := range r.Table.PKs {
		if !key.HasZeroValue(r.Struct) {
			return nil
		}
	}
	return Invalid(fmt.Sprintf("must have its primary key set, got a %s without", r.Table.Type))
}

// Column returns the column of that SQL name. Errors: an [*locks.InvalidError] for the model.
func (r Row) Column(name string) (*schema.Field, error) {
	for _, field := range r.Table.Fields {
		if field.Name == name {
			return field, nil
		}
	}
	return nil, Invalid(fmt.Sprintf("must have a column %q, which %s has not", name, r.Table.Type))
}

// Invalid is the error for a model that breaks a rule.
func Invalid(reason string) error { return &locks.InvalidError{Field: "model", Reason: reason} }

func pointedAt(model any) (reflect.Value, error) {
	v := reflect.ValueOf(model)
	switch {
	case !v.IsValid():
		return v, Invalid("must not be nil")
	case v.Kind() != reflect.Pointer:
		return v, Invalid(fmt.Sprintf("must be a pointer, got %T", model))
	case v.IsNil():
		return v, Invalid(fmt.Sprintf("must not be a nil %T", model))
	}
	return v.Elem(), nil
}

// tableOf asks bun, which takes a type with a Scan method for a single value and never for a row.
func tableOf(dialect schema.Dialect, t reflect.Type) (*schema.Table, error) {
	pointer := reflect.PointerTo(t)
	if pointer.Implements(reflect.TypeFor[sql.Scanner]()) || pointer.Implements(reflect.TypeFor[bun.Model]()) {
		return nil, Invalid(fmt.Sprintf("must be a struct for a row, and %s scans itself", t))
	}
	table := dialect.Tables().Get(t)
	if len(table.PKs) == 0 {
		return nil, Invalid(fmt.Sprintf("must have a primary key, and %s has no field with `bun:\",pk\"`", t))
	}
	return table, nil
}
