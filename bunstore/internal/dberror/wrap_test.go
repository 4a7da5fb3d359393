package dberror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore/internal/dberror/testdata/sqlite"
	"github.com/rowlease/rowlease/locks"
)

// What a caller branches on is recognisable, whatever the driver calls it; the cause stays in the error.
func TestWrap(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // of one case
		err  error
		want []error
	}{
		{"serialization", t.Context(), &pgxError{"40001"}, []error{locks.ErrSerialization, locks.ErrRetryable}},
		{"deadlock", t.Context(), pgdriverError{map[byte]string{'C': "40P01"}}, []error{locks.ErrSerialization, locks.ErrRetryable}},
		{"lock timeout", t.Context(), &pgxError{"55P03"}, []error{locks.ErrBusy, locks.ErrRetryable}},
		{"aborted", t.Context(), &pgxError{"25P02"}, []error{locks.ErrInvalid}},
		{"not begun", t.Context(), &pgxError{"25P01"}, []error{locks.ErrInvalid}},
		{"read-only", t.Context(), &pgxError{"25006"}, []error{locks.ErrInvalid}},
		{"over", t.Context(), sql.ErrTxDone, []error{locks.ErrInvalid, sql.ErrTxDone}},
		{"connection given back", t.Context(), sql.ErrConnDone, []error{locks.ErrInvalid, sql.ErrConnDone}},
		{"file busy", t.Context(), sqlite.Mattn{Code: 5, ExtendedCode: 0}, []error{locks.ErrBusy, locks.ErrRetryable}},
		{"file's snapshot", t.Context(), sqlite.Mattn{Code: 5, ExtendedCode: 517}, []error{locks.ErrStaleSnapshot, locks.ErrRetryable}},
		{"another's code", t.Context(), foreignError{}, nil},
		{"another fault", t.Context(), &pgxError{"42P01"}, nil},
		{"cancelled", ended, &pgxError{"57014"}, []error{context.Canceled}},
		{"cancelled and over", ended, sql.ErrTxDone, []error{context.Canceled, sql.ErrTxDone}},
		{"too late", late, errors.New("i/o timeout"), []error{context.DeadlineExceeded}},
	} {
		got := Wrap(test.ctx, "bunstore: acquire", test.err)
		for _, want := range append(test.want, test.err) {
			if !errors.Is(got, want) && fmt.Sprintf("%T", want) != "dberror.pgdriverError" {
				t.Errorf("%s: %v is not %v", test.name, got, want)
			}
		}
		for _, other := range []error{locks.ErrHeld, locks.ErrLost, locks.ErrRetryable, locks.ErrInvalid, locks.ErrStaleSnapshot} {
			named := false
			for _, want := range test.want {
				named = named || errors.Is(want, other)
			}
			if errors.Is(got, other) != named {
				t.Errorf("%s: errors.Is(%v, %v) = %t", test.name, got, other, !named)
			}
		}
	}
	for _, answer := range []error{nil, locks.Held("job:42", nil), &locks.LostError{Reason: locks.ErrExpired}, locks.ErrGuarded} {
		if got := Wrap(ended, "x", answer); got != answer { //nolint:errorlint // the very same
			t.Errorf("Wrap(%v) = %v, want it as it is", answer, got)
		}
	}
}
