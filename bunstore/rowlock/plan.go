package rowlock

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/uptrace/bun"
)

// CheckPlan is for tests: it asks the database for its plan of [LockRows] with the same arguments, or of [Lock] where
// the condition is nil, and answers a [*PlanError] when rows are found by a sequential scan, of a joined table too, or
// by the scan of a whole index. No row is locked or read.
//
// Databases under test are small, and of a small table the planner reads the whole whatever indexes there are. So it is
// asked with enable_seqscan off, which is restored: what it scans then, no index serves. CheckPlan does not tell
// whether the planner will take the index on the real data, nor whether it is a good one: also of an index whose first
// column has no condition, all is read. Other errors are those of [Lock]; it too waits, up to the limit, for a lock on
// the whole table.
//
// PostgreSQL documentation: 20.7.1 "Planner Method Configuration", EXPLAIN.
func CheckPlan(ctx context.Context, tx bun.IDB, model any, condition Condition, options ...Option) error {
	c, err := newCall(tx, options)
	if err != nil {
		return err
	}
	var query *bun.SelectQuery
	if condition == nil {
		query, err = c.byKey(model)
	} else {
		query, err = c.byCondition(model, condition)
	}
	if err != nil {
		return err
	}
	var scans []Scan
	what := fmt.Sprintf("rowlock: check the plan for %q", query.GetTableName())
	err = c.within(ctx, what, query.GetTableName(), withoutSeqscan, false, func(ctx context.Context) error {
		plan, err := c.plan(ctx, query)
		if err != nil {
			return err
		}
		scans, err = c.scans(ctx, plan)
		return err
	})
	if err == nil && len(scans) > 0 {
		err = &PlanError{Scans: scans}
	}
	return err
}

// PlanError says that the database reads whole tables to find the rows that it locks.
type PlanError struct {
	// Scans has at least one.
	Scans []Scan
}

// Scan is the reading of a table, or of one of its indexes, from one end to the other.
type Scan struct {
	// Table is the table's name in the database; for a partitioned table, that of a partition.
	Table string
	// Condition is the SQL that no index serves, "" where there is none.
	Condition string
}

// Error names each table and condition.
func (e *PlanError) Error() string {
	texts := make([]string, len(e.Scans))
	for i, scan := range e.Scans {
		why := "no index serves " + scan.Condition
		if scan.Condition == "" {
			why = "there is no condition"
		}
		texts[i] = fmt.Sprintf("the whole of %q is read to lock rows: %s", scan.Table, why)
	}
	return "rowlock: " + strings.Join(texts, "; ")
}

// planNode is a node of EXPLAIN (FORMAT JSON).
type planNode struct {
	Type      string     `json:"Node Type"`
	Schema    string     `json:"Schema"`
	Table     string     `json:"Relation Name"`
	Index     string     `json:"Index Name"`
	IndexCond string     `json:"Index Cond"`
	Filter    string     `json:"Filter"`
	Children  []planNode `json:"Plans"`

	// bounded: what is above reads no more rows than a LIMIT says.
	bounded bool
}

const (
	withoutSeqscan = "SET LOCAL enable_seqscan = off;\n"
	// VERBOSE tells the schema.
	explain = `EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) ?`
	// The whole of a partial index is what its condition selects.
	isPartial = `SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relname = ? AND i.indpred IS NOT NULL)`
)

func (c call) plan(ctx context.Context, query *bun.SelectQuery) (planNode, error) {
	var text string
	if err := c.tx.NewRaw(explain, query).Scan(ctx, &text); err != nil {
		return planNode{}, err
	}
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return planNode{}, err
	}
	if len(plans) != 1 {
		return planNode{}, fmt.Errorf("EXPLAIN answered %d plans, want 1", len(plans))
	}
	return plans[0].Plan, nil
}

// scans finds what is read from one end to the other, at a node and below it.
func (c call) scans(ctx context.Context, node planNode) ([]Scan, error) {
	var found []Scan
	whole, err := c.isWhole(ctx, node)
	if err != nil {
		return nil, err
	}
	if whole {
		found = append(found, Scan{Table: node.Table, Condition: node.Filter})
	}
	for _, child := range node.Children {
		child.bounded = node.Type == "Limit" || node.Type == "LockRows" && node.bounded
		below, err := c.scans(ctx, child)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}

func (c call) isWhole(ctx context.Context, node planNode) (bool, error) {
	switch node.Type {
	case "Seq Scan":
		return true, nil
	case "Index Scan", "Index Only Scan":
		// Without sequential scans the planner walks through an index instead, and filters what it meets.
		if node.IndexCond != "" || node.bounded && node.Filter == "" {
			return false, nil
		}
		var partial bool
		err := c.tx.NewRaw(isPartial, node.Schema, node.Index).Scan(ctx, &partial)
		return !partial, err
	}
	return false, nil
}
