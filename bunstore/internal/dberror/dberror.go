// Package dberror reads what a database says in its errors, whatever the driver's type is: no driver is imported for it.
package dberror

import (
	"reflect"
	"slices"
	"strings"
)

// SQLState returns the five-character SQLSTATE that the PostgreSQL server sent, or "" when no error in err's tree has
// one: then the fault is the connection's or the driver's. No driver is imported for it: pgx and lib/pq have a method
// SQLState, bun's pgdriver keeps the protocol's fields by their letter.
func SQLState(err error) string {
	var state string
	walkErrors(err, func(err error) bool {
		switch e := err.(type) { //nolint:errorlint // walkErrors unwraps
		case interface{ SQLState() string }:
			state = e.SQLState()
		case interface{ Field(byte) string }:
			state = e.Field('C')
		}
		return state != ""
	})
	return state
}

// SQLSTATEs that are told apart (PostgreSQL documentation, appendix A).
const (
	SerializationFailure = "40001"
	DeadlockDetected     = "40P01"
	LockNotAvailable     = "55P03" // NOWAIT, and lock_timeout
	TransactionAborted   = "25P02"
	NoTransaction        = "25P01"
	QueryCanceled        = "57014"
	IdleInTransaction    = "25P03" // idle_in_transaction_session_timeout
	ReadOnlyTransaction  = "25006"
)

// The SQLite result codes that are told apart. An extended code has its primary code in the low byte.
const (
	SQLiteError        = 1
	SQLiteBusy         = 5
	SQLiteLocked       = 6
	SQLiteReadOnly     = 8
	SQLiteInterrupt    = 9
	SQLiteConstraint   = 19
	SQLiteBusySnapshot = 517
)

// SQLiteCode returns the SQLite result code of the first error in err's tree that has one, the extended code where the
// driver tells it, and 0 when none has. Mask it with 0xff for the primary code. No driver is imported for it:
// modernc.org/sqlite has a method Code, ncruces/go-sqlite3 also a method ExtendedCode, mattn/go-sqlite3 fields of
// these names. Other errors have codes, too, which mean something else (gRPC's 5 is NotFound): only those count whose
// type is from a package with "sqlite" in its path, which these three and their forks have.
func SQLiteCode(err error) int {
	var code int
	walkErrors(err, func(err error) bool {
		if !isOfSQLite(err) {
			return false
		}
		v := reflect.ValueOf(err)
		for _, found := range []reflect.Value{
			result(v.MethodByName("ExtendedCode")), field(v, "ExtendedCode"),
			result(v.MethodByName("Code")), field(v, "Code"),
		} {
			if code = integer(found); code != 0 {
				return true
			}
		}
		return false
	})
	return code
}

func isOfSQLite(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.Contains(t.PkgPath(), "sqlite")
}

// walkErrors calls visit for err and what it wraps, outermost first, until visit returns true.
func walkErrors(err error, visit func(error) bool) bool {
	if err == nil {
		return false
	}
	if visit(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As does, with a question it cannot ask
	case interface{ Unwrap() error }:
		return walkErrors(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if walkErrors(inner, visit) {
				return true
			}
		}
	}
	return false
}

func result(method reflect.Value) reflect.Value {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return reflect.Value{}
	}
	return method.Call(nil)[0]
}

func field(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

func integer(v reflect.Value) int {
	switch {
	case !v.IsValid():
		return 0
	case v.CanInt():
		return int(v.Int())
	case v.CanUint():
		return int(v.Uint())
	}
	return 0
}

// IsSQLiteBusy reports whether somebody else has the file: a new try may find it free. [SQLiteBusySnapshot] counts too,
// but only a new transaction can get over that one.
func IsSQLiteBusy(err error) bool {
	primary := SQLiteCode(err) & 0xff
	return primary == SQLiteBusy || primary == SQLiteLocked
}

// IsSQLState reports whether err has one of the SQLSTATEs.
func IsSQLState(err error, states ...string) bool {
	got := SQLState(err)
	return got != "" && slices.Contains(states, got)
}
