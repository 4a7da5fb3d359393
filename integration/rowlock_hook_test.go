package integration_test

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// hookedAccount does in its hook what the context says.
type hookedAccount struct {
	bun.BaseModel `bun:"table:accounts"`

	ID int64 `bun:",pk"`
}

type hookKey struct{}

func (*hookedAccount) AfterSelect(ctx context.Context, _ *bun.SelectQuery) error {
	return ctx.Value(hookKey{}).(func(context.Context) error)(ctx)
}

type panicKey struct{}

// panickingHook panics at every query of a context that says so.
type panickingHook struct{}

func (panickingHook) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (panickingHook) AfterQuery(ctx context.Context, _ *bun.QueryEvent) {
	if ctx.Value(panicKey{}) != nil {
		panic("boom")
	}
}

// Whatever a hook does, the transaction has its timeouts back and no savepoint of ours.
func TestRowLockHooks(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t)).WithQueryHook(panickingHook{})
	rowAccounts(t, db)
	for name, lock := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"a hook that locks another row": func(ctx context.Context, tx bun.Tx) error {
			ctx = context.WithValue(ctx, hookKey{}, func(ctx context.Context) error {
				return rowlock.Lock(ctx, tx, &rowAccount{ID: 2})
			})
			return rowlock.Lock(ctx, tx, &hookedAccount{ID: 1})
		},
		"a model's hook that panics": func(ctx context.Context, tx bun.Tx) error {
			ctx = context.WithValue(ctx, hookKey{}, func(context.Context) error { panic("boom") })
			return rowlock.Lock(ctx, tx, &hookedAccount{ID: 1})
		},
		"a query's hook that panics": func(ctx context.Context, tx bun.Tx) error {
			return rowlock.Lock(context.WithValue(ctx, panicKey{}, true), tx, &rowAccount{ID: 1})
		},
	} {
		tx := rowTx(t, db, nil)
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '7s'; SET LOCAL statement_timeout = '1min'"); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if p := recover(); p != nil && p != "boom" {
					panic(p)
				}
			}()
			if err := lock(t.Context(), tx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
		got := inTx(t, tx, "SELECT current_setting('lock_timeout') || ' ' || current_setting('statement_timeout')")
		if got != "7s 1min" {
			t.Errorf("%s: timeouts are %q, want them as before", name, got)
		}
		mustLock(t, tx, 1)
		if _, err := tx.ExecContext(t.Context(), "ROLLBACK TO SAVEPOINT rowlease_rowlock"); err == nil {
			t.Errorf("%s: our savepoint is still there", name)
		}
		tx.Rollback()
	}
}
