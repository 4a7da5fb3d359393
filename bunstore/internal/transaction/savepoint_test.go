package transaction_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/transaction"
)

// server keeps what is executed, and fails what begins with the word.
type server struct {
	executed []string
	fails    string
	err      error
}

func (s *server) ExecContext(ctx context.Context, query string, _ ...any) (sql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, limited := ctx.Deadline(); !limited {
		return nil, errors.New("without a deadline")
	}
	s.executed = append(s.executed, strings.ReplaceAll(query, ";\n", "; "))
	if s.fails != "" && strings.HasPrefix(query, s.fails) {
		return nil, s.err
	}
	return nil, nil
}

type stateError string

func (s stateError) Error() string    { return "SQLSTATE " + string(s) }
func (s stateError) SQLState() string { return string(s) }

const (
	made     = "SAVEPOINT s; SET a"
	released = "SET b; RELEASE SAVEPOINT s"
	undone   = "ROLLBACK TO SAVEPOINT s; RELEASE SAVEPOINT s"
)

var savepoint = transaction.Savepoint{Name: "s", Begin: "SET a", End: "SET b", Limit: time.Minute}

func TestSavepoint(t *testing.T) {
	t.Parallel()
	fault, reset := errors.New("fault"), errors.New("connection reset")
	for _, test := range []struct {
		name     string
		fails    string // what the server fails
		with     error
		keep     bool
		err      error // try's
		want     error
		executed []string
	}{
		{"kept", "", nil, true, nil, nil, []string{made, released}},
		{"not to be kept", "", nil, false, nil, nil, []string{made, undone}},
		{"an error", "", nil, true, fault, fault, []string{made, undone}},
		{"a release that fails", "SET b", fault, true, nil, fault, []string{made, released, undone}},
		{"an undo that fails", "ROLLBACK", reset, false, nil, reset, []string{made, undone}},
		{"an undo of an error that fails", "ROLLBACK", reset, false, fault, reset, []string{made, undone}},
		{"made, but not what comes with it", "SAVEPOINT", stateError("22023"), true, nil, stateError("22023"), []string{made, undone}},
		{"no transaction", "SAVEPOINT", stateError("25P01"), true, nil, stateError("25P01"), []string{made}},
		{"an aborted transaction", "SAVEPOINT", stateError("25P02"), true, nil, stateError("25P02"), []string{made}},
		{"no connection", "SAVEPOINT", reset, true, nil, reset, []string{made}},
	} {
		s := &server{fails: test.fails, err: test.with}
		err := savepoint.Do(t.Context(), s, func() (bool, error) { return test.keep, test.err })
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: err = %v, want %v", test.name, err, test.want)
		}
		if test.err != nil && (errors.Is(err, test.err) != errors.Is(test.want, test.err) || !strings.Contains(err.Error(), test.err.Error())) {
			t.Errorf("%s: err = %v, want the text of %v, and to be it only when it was undone", test.name, err, test.err)
		}
		if !slices.Equal(s.executed, test.executed) {
			t.Errorf("%s: executed %q, want %q", test.name, s.executed, test.executed)
		}
	}

	s := new(server)
	plain := transaction.Savepoint{Name: "s", Limit: time.Minute}
	err := plain.Do(t.Context(), s, func() (bool, error) { return true, nil })
	if want := []string{"SAVEPOINT s", "RELEASE SAVEPOINT s"}; err != nil || !slices.Equal(s.executed, want) {
		t.Errorf("executed %q with %v, want %q", s.executed, err, want)
	}
}

func TestASavepointIsUndoneWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"", "ROLLBACK"} {
		s := &server{fails: fails, err: sql.ErrTxDone}
		ctx, cancel := context.WithCancel(t.Context())
		err := savepoint.Do(ctx, s, func() (bool, error) {
			cancel()
			return false, ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || !slices.Equal(s.executed, []string{made, undone}) {
			t.Errorf("err = %v after %q, want Canceled and no savepoint", err, s.executed)
		}
	}
}

func TestASavepointIsUndoneWhenItsTryPanics(t *testing.T) {
	t.Parallel()
	s := new(server)
	panicked := func() (p any) {
		defer func() { p = recover() }()
		_ = savepoint.Do(t.Context(), s, func() (bool, error) { panic("boom") })
		return nil
	}()
	if panicked != "boom" || !slices.Equal(s.executed, []string{made, undone}) {
		t.Errorf("panic %v after %q, want try's and no savepoint", panicked, s.executed)
	}
}
