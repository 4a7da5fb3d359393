package dberror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore/internal/dberror/testdata/sqlite"
)

// The drivers' error types in their shapes, so that none is needed here.
type (
	pgxError      struct{ state string }
	pgdriverError struct{ fields map[byte]string }
	foreignError  struct{} // connect-go's, whose code 5 is NotFound
)

func (e *pgxError) Error() string           { return "pgx " + e.state }
func (e *pgxError) SQLState() string        { return e.state }
func (e pgdriverError) Error() string       { return "pgdriver" }
func (e pgdriverError) Field(k byte) string { return e.fields[k] }
func (foreignError) Error() string          { return "foreign" }
func (foreignError) Code() uint32           { return 5 }

func TestSQLState(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"other", errors.New("connection reset"), ""},
		{"pgx", &pgxError{"40001"}, "40001"},
		{"pgdriver", pgdriverError{map[byte]string{'C': "42P01", 'M': "no"}}, "42P01"},
		{"wrapped", fmt.Errorf("a: %w", fmt.Errorf("b: %w", &pgxError{"23505"})), "23505"},
		{"joined", errors.Join(errors.New("x"), fmt.Errorf("y: %w", pgdriverError{map[byte]string{'C': "25P02"}})), "25P02"},
		{"two wrapped", fmt.Errorf("%w: %w", context.Canceled, &pgxError{"57014"}), "57014"},
		{"without a state", errors.Join(&pgxError{""}, &pgxError{"55P03"}), "55P03"},
	} {
		if got := SQLState(test.err); got != test.want {
			t.Errorf("%s: SQLState = %q, want %q", test.name, got, test.want)
		}
	}
	if !IsSQLState(&pgxError{"40P01"}, "40001", "40P01") || IsSQLState(errors.New("x"), "") {
		t.Error("IsSQLState does not compare with the states it is given")
	}
}

func TestSQLiteCode(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want int
	}{
		{"nil", nil, 0},
		{"other", errors.New("x"), 0},
		{"of no SQLite driver", foreignError{}, 0},
		{"of no SQLite driver, pointer", &foreignError{}, 0},
		{"a code that is no number", sqlite.Text{Code: "5"}, 0},
		{"mattn, extended", sqlite.Mattn{Code: 5, ExtendedCode: 517}, 517},
		{"mattn, primary alone", sqlite.Mattn{Code: 6, ExtendedCode: 0}, 6},
		{"mattn, pointer", &sqlite.Mattn{Code: 8, ExtendedCode: 0}, 8},
		{"ncruces", sqlite.Ncruces{}, 517},
		{"wrapped", fmt.Errorf("a: %w", errors.Join(errors.New("x"), sqlite.Mattn{Code: 5, ExtendedCode: 0})), 5},
	} {
		if got := SQLiteCode(test.err); got != test.want {
			t.Errorf("%s: SQLiteCode = %d, want %d", test.name, got, test.want)
		}
	}
}

// modernc's errors are asked for real: busy for a second writer, its extended form for one that has read before.
func TestSQLiteCodeOfModernc(t *testing.T) {
	ctx := t.Context()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "x.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var conns [2]*sql.Conn
	for i := range conns {
		if conns[i], err = db.Conn(ctx); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	must := func(conn *sql.Conn, statement string) {
		t.Helper()
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	must(conns[0], "CREATE TABLE t (x)")
	must(conns[0], "BEGIN IMMEDIATE")
	_, err = conns[1].ExecContext(ctx, "BEGIN IMMEDIATE")
	if got := SQLiteCode(fmt.Errorf("wrapped: %w", err)); got != SQLiteBusy || !IsSQLiteBusy(err) {
		t.Errorf("second writer: code %d, want %d (%v)", got, SQLiteBusy, err)
	}
	must(conns[0], "ROLLBACK")

	must(conns[1], "BEGIN")
	var n int
	if err := conns[1].QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	must(conns[0], "INSERT INTO t VALUES (1)")
	_, err = conns[1].ExecContext(ctx, "INSERT INTO t VALUES (2)")
	if got := SQLiteCode(err); got != SQLiteBusySnapshot || !IsSQLiteBusy(err) {
		t.Errorf("writer with an old snapshot: code %d, want %d (%v)", got, SQLiteBusySnapshot, err)
	}
}
