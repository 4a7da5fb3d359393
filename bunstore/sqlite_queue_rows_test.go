package bunstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/locks/waitqueue"
)

// queueOn is the engine on a new file.
func queueOn(t *testing.T) (sqlite, *bun.DB) {
	t.Helper()
	db := newSQLiteDB(t)
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	store, err := New(db)
	if err != nil {
		t.Fatal(err)
	}
	return store.engine.(sqlite), db
}

// crowd makes so many tickets of one resource, numbered on, which end then.
func crowd(t *testing.T, db *bun.DB, resource string, n int, expires int64) {
	t.Helper()
	if _, err := db.DB.ExecContext(t.Context(), `WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?2)
INSERT INTO distributed_lock_waiters (resource, owner, attempt, channel, since, expires_at)
SELECT ?1, 'w', ?1 || n || ' ' || ?3, '', 0, ?3 FROM i`, resource, n, expires); err != nil {
		t.Fatal(err)
	}
}

// farOff is an end that does not come.
var farOff = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// More than one statement has room for.
func TestSQLiteKeepsAndLooksAtMany(t *testing.T) {
	t.Parallel()
	engine, db := queueOn(t)
	crowd(t, db, "dead", 3, 0)
	crowd(t, db, "a", 2, 0)
	crowd(t, db, "a", sqliteAtOnce+10, farOff)
	crowd(t, db, "b", 1, farOff)
	crowd(t, db, "c", 1, farOff)
	mustExec(t, db, `INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
VALUES ('b', 'w', 1, 'x', 0, 7258118400000000), ('c', 'w', 2, 'x', 0, 1)`)
	const first, last = 6, 6 + sqliteAtOnce + 11 // a's live ones, b's, c's; the dead before have 1 to 5
	var asked []waitqueue.Ticket
	var numbers []int64
	for n := int64(1); n <= last+1; n++ { // and one that there is not
		asked, numbers = append(asked, waitqueue.Ticket{Number: n}), append(numbers, n)
	}
	sights, err := engine.look(t.Context(), asked)
	if err != nil || len(sights) != last-first+1 {
		t.Fatalf("look: %d sights, %v; want %d", len(sights), err, last-first+1)
	}
	for _, sight := range sights {
		if turn := sight.Number == first || sight.Number == last; sight.Turn != turn || (sight.After > 0) == turn || sight.After < 0 {
			t.Errorf("sight %+v; turn must be %v, and a time given otherwise", sight, turn)
		}
	}

	kept, err := engine.keep(t.Context(), numbers, time.Hour, "here")
	slices.Sort(kept)
	if err != nil || !slices.Equal(kept, numbers[first-1:last]) {
		t.Errorf("keep: %d kept, %v; want the live ones, %d", len(kept), err, last-first+1)
	}
	if n := numberOf(t, db, `SELECT count(*) FROM distributed_lock_waiters WHERE channel = 'here'
AND expires_at BETWEEN (unixepoch() + 1800) * 1000000 AND (unixepoch() + 7200) * 1000000`); n != int64(len(kept)) {
		t.Errorf("%d tickets have their time and channel, want %d", n, len(kept))
	}
	if n := numberOf(t, db, `SELECT count(*) FROM distributed_lock_waiters WHERE resource = 'a' AND expires_at = 0`); n != 0 {
		t.Errorf("%d dead tickets are before the ones that were kept", n)
	}
	if kept, err := engine.keep(t.Context(), []int64{1, 2, last + 1}, time.Hour, ""); len(kept) != 0 || err != nil {
		t.Errorf("keep of dead tickets = %v, %v", kept, err)
	}

	queue, err := engine.waiters(t.Context(), "a", 2)
	if err != nil || queue.Waiting != sqliteAtOnce+10 || len(queue.Waiters) != 2 || queue.Waiters[0].Number != first || queue.Waiters[1].Number != first+1 {
		t.Errorf("waiters = %+v, %v", queue, err)
	}
	if queue, err := engine.waiters(t.Context(), "a", 0); err != nil || queue.Waiting != sqliteAtOnce+10 || queue.Waiters != nil {
		t.Errorf("waiters, none of them = %+v, %v", queue, err)
	}
}

// Whose turn it is, is found along an index, however many wait.
func TestSQLiteFindsTheFirstTicketByTheIndex(t *testing.T) {
	t.Parallel()
	engine, db := queueOn(t)
	look, args := inPlaceholders(engine.sql.look, []int64{1, 2})
	for name, test := range map[string]struct {
		statement string
		args      []any
	}{
		"head":           {engine.sql.head, []any{"r"}},
		"next":           {engine.sql.next, []any{"r"}},
		"glance":         {engine.sql.glance, []any{"r"}},
		"look":           {look, args},
		"acquire":        {engine.sql.acquire, []any{"r", "w", 1, nil, "k"}},
		"acquire queued": {engine.sql.acquireQueued, []any{"r", "w", 1, nil, "k", false}},
		"served":         {engine.sql.served, []any{"r", "w", "k"}},
		"dequeue":        {engine.sql.dequeue, []any{"r", "w", "k"}},
		"place":          {engine.sql.place, []any{"r", "w", "k", 1}},
	} {
		var plan []string
		err := engine.query(t.Context(), db.DB, 1000, func(rows *sql.Rows) error {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		}, "EXPLAIN QUERY PLAN "+test.statement, test.args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, detail := range plan {
			if strings.HasPrefix(detail, "SCAN distributed_lock") && !strings.Contains(detail, "_tokens") ||
				strings.HasPrefix(detail, "SCAN w") || strings.HasPrefix(detail, "SCAN head") || strings.Contains(detail, "TEMP B-TREE FOR ORDER BY") {
				t.Errorf("%s: %q in the plan %q", name, detail, plan)
			}
		}
	}
}

func TestSQLiteCannotAnnounce(t *testing.T) {
	t.Parallel()
	engine, _ := queueOn(t)
	if err := engine.announce(context.Background(), "c", "1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("announce = %v", err)
	}
}

func TestMigrateSQLiteWaiters(t *testing.T) {
	t.Parallel()
	engine, db := queueOn(t)
	lease := table{name: DefaultTable}
	token := grantSQLite(t, db, lease, "r")
	crowd(t, db, "r", 1, farOff)
	mustExec(t, db, waiterTable.sqlite(lease).up...) // it can run again
	if n := numberOf(t, db, `SELECT count(*) FROM distributed_lock_waiters`); n != 1 {
		t.Error("up again has taken the tickets")
	}
	mustExec(t, db, waiterTable.sqlite(lease).down...)
	mustExec(t, db, waiterTable.sqlite(lease).down...)
	if n := numberOf(t, db, `SELECT count(*) FROM sqlite_master WHERE name LIKE '%waiters%'`); n != 0 {
		t.Errorf("%d things are left after the down", n)
	}
	if n := numberOf(t, db, `SELECT count(*) FROM distributed_locks`); n != 1 {
		t.Error("the down of the waiters has taken the leases")
	}
	_, err := check(t.Context(), db, lease)
	expectProblems(t, err, `the table "distributed_lock_waiters" of those who wait is missing`)
	if err := Migrate(t.Context(), db); err != nil { // which finds it gone
		t.Fatal(err)
	}
	if _, err := check(t.Context(), db, lease); err != nil {
		t.Error(err)
	}
	if _, err := engine.look(t.Context(), []waitqueue.Ticket{{Resource: "r", Number: 1}}); err != nil {
		t.Error(err)
	}
	if err := Rollback(t.Context(), db); err != nil { // of the last group: the waiters'
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if next := grantSQLite(t, db, lease, "r"); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}

func TestCheckSQLiteWaiters(t *testing.T) {
	t.Parallel()
	const columns = `number INTEGER PRIMARY KEY AUTOINCREMENT, resource TEXT NOT NULL, owner TEXT NOT NULL, attempt TEXT NOT NULL,
		channel TEXT NOT NULL, since INTEGER NOT NULL, expires_at INTEGER NOT NULL, UNIQUE (attempt, owner, resource)`
	replaced := func(old, replacement string) []string {
		return []string{
			`DROP TABLE distributed_lock_waiters`, `CREATE TABLE distributed_lock_waiters (` + strings.Replace(columns, old, replacement, 1) + `)`,
			`CREATE INDEX i ON distributed_lock_waiters (resource, number)`,
		}
	}
	for name, test := range map[string]struct {
		broken []string
		want   []string
	}{
		"by hand":      {replaced("", ""), nil},
		"no column":    {replaced(`channel TEXT NOT NULL, `, ""), []string{`column channel (TEXT) of "distributed_lock_waiters" is missing`}},
		"another type": {replaced(`since INTEGER`, "since TEXT"), []string{`column since of "distributed_lock_waiters" is of type TEXT`}},
		"no unique":    {replaced(`, UNIQUE (attempt, owner, resource)`, ""), []string{"has no index on (attempt, owner, resource)"}},
		"no index":     {[]string{`DROP INDEX distributed_lock_waiters_in_order`}, []string{"has no index on (resource, number)"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, db := queueOn(t)
			mustExec(t, db, test.broken...)
			_, err := check(t.Context(), db, table{name: DefaultTable})
			expectProblems(t, err, test.want...)
		})
	}
}
