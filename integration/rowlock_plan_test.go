package integration_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/rowlock"
	"github.com/rowlease/rowlease/integration/internal/postgres"
)

func TestRowLockPlan(t *testing.T) {
	forEachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		rowAccounts(t, db)
		where := func(conditions ...string) func(*bun.SelectQuery) *bun.SelectQuery {
			return func(q *bun.SelectQuery) *bun.SelectQuery {
				for _, condition := range conditions {
					q = q.Where(condition)
				}
				return q
			}
		}
		poor := func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("balance = 0").Order("id").Limit(10) }
		// An index serves the locked table's condition here, and none the other's.
		joined := func(q *bun.SelectQuery) *bun.SelectQuery {
			return q.Join("JOIN branches AS b ON b.city = 'Utrecht'").Where("a.id = 1")
		}
		for _, test := range []struct {
			name      string
			index     string
			condition func(*bun.SelectQuery) *bun.SelectQuery
			table     string // "" where the plan is good
			filter    string
		}{
			{"no index", "", where("balance = 0"), "accounts", "(a.balance = 0)"},
			{"an index", "(balance)", where("balance = 0"), "", ""},
			{"a primary key", "", where("id = 1"), "", ""},
			{"an index, and a filter", "(balance)", where("balance = 0", "branch = 1"), "", ""},
			{"a whole index in order", "", poor, "accounts", "(a.balance = 0)"},
			{"an index in order", "(balance, id)", poor, "", ""},
			{"a partial index in order", "(id) WHERE balance = 0", poor, "", ""},
			{"another partial index", "(id) WHERE balance = 1", poor, "accounts", "(a.balance = 0)"},
			{"no condition", "", where(), "accounts", ""},
			{"no condition, in order", "", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Order("id") }, "accounts", ""},
			{"the first of all", "", func(q *bun.SelectQuery) *bun.SelectQuery { return q.Order("id").Limit(3) }, "", ""},
			{"a joined table", "", joined, "branches", "city"},
		} {
			tx := rowTx(t, db, nil)
			if test.index != "" {
				if _, err := tx.ExecContext(t.Context(), "CREATE INDEX ON accounts "+test.index); err != nil {
					t.Fatal(err)
				}
			}
			err := rowlock.CheckPlan(t.Context(), tx, &[]rowAccount{}, test.condition, rowlock.SkipLocked())
			var plan *rowlock.PlanError
			switch {
			case test.table == "" && err != nil:
				t.Errorf("%s: %v", test.name, err)
			case test.table == "":
			case !errors.As(err, &plan) || len(plan.Scans) != 1 || plan.Scans[0].Table != test.table || !strings.Contains(plan.Scans[0].Condition, test.filter):
				t.Errorf("%s: err = %v, want a scan of %s with %s", test.name, err, test.table, test.filter)
			case !strings.Contains(err.Error(), test.table) || !strings.Contains(err.Error(), plan.Scans[0].Condition):
				t.Errorf("%s: %q names neither the table nor the condition", test.name, err)
			}
			var setting string
			if err := tx.NewRaw("SHOW enable_seqscan").Scan(t.Context(), &setting); err != nil || setting != "on" {
				t.Errorf("%s: enable_seqscan is %q afterwards (%v)", test.name, setting, err)
			}
			tx.Rollback()
		}
	})
}

// The plan of Lock: a model's key that is none in the database.
func TestRowLockPlanByKey(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", postgres.Shared(t).Database(t))
	rowAccounts(t, db)
	tx := rowTx(t, db, nil)
	if err := rowlock.CheckPlan(t.Context(), tx, &rowAccount{ID: 1}, nil); err != nil {
		t.Error(err)
	}
	if _, err := tx.ExecContext(t.Context(), "ALTER TABLE accounts DROP CONSTRAINT accounts_pkey"); err != nil {
		t.Fatal(err)
	}
	var plan *rowlock.PlanError
	if err := rowlock.CheckPlan(t.Context(), tx, &rowAccount{ID: 1}, nil); !errors.As(err, &plan) {
		t.Errorf("err = %v, want a PlanError", err)
	}
	if err := rowlock.CheckPlan(t.Context(), tx, &[]rowAccount{}, func(q *bun.SelectQuery) *bun.SelectQuery { return q.Where("nothing = 1") }); err == nil || errors.As(err, &plan) {
		t.Errorf("err = %v, want the server's", err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
		t.Errorf("the transaction is not usable: %v", err)
	}
}
