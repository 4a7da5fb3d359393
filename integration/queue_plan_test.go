package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// sentHook keeps the statements about tickets that are sent, each with its last arguments, as SQL.
type sentHook struct {
	mu   sync.Mutex
	sent map[string]string
}

func (h *sentHook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if strings.Contains(event.Query, "distributed_lock_waiters") {
		var args []string
		for _, arg := range event.QueryArgs {
			switch arg := arg.(type) {
			case nil:
				args = append(args, "NULL")
			case string:
				args = append(args, "'"+strings.ReplaceAll(arg, "'", "''")+"'")
			default:
				args = append(args, fmt.Sprint(arg))
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sent[event.Query] = strings.Join(args, ", ")
	}
	return ctx
}
func (*sentHook) AfterQuery(context.Context, *bun.QueryEvent) {}

func (h *sentHook) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for statement := range h.sent {
		if strings.Contains(statement, text) {
			return true
		}
	}
	return false
}

// node is a part of a plan that has run.
type node struct {
	Type    string  `json:"Node Type"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []node
}

func (n node) read() float64 {
	rows := (n.Rows + n.Removed) * n.Loops
	for _, part := range n.Plans {
		rows += part.read()
	}
	return rows
}

// Each statement of a hand-over reads a few rows, also by a plan that was made while nobody waited, and with ten thousand.
func TestQueueOfTenThousandIsReadByItsHead(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	hook := &sentHook{sent: make(map[string]string)}
	store := newStore(t, db, bunstore.WithQueryHook(hook), bunstore.WithPoll(10*time.Millisecond, 10*time.Millisecond))
	r := func(attempt string) locks.Request {
		return locks.Request{Resource: "r", Owner: "w", Attempt: attempt, TTL: time.Hour}
	}
	acquire(t, store, request("other", "w"))
	enqueue(t, store, r("1"))
	acquire(t, store, r("1"))
	if err := store.ReleaseAttempt(t.Context(), "r", "w", "1"); err != nil {
		t.Fatal(err)
	}
	place := enqueue(t, store, r("2"))
	eventually(t, "the ticket is looked at", func() bool { return hook.has("json_to_recordset") })
	lock := acquire(t, store, r("2"))
	place.Served()
	place = enqueue(t, store, r("3"))
	if err := store.Release(t.Context(), lock.Grant()); err != nil {
		t.Fatal(err)
	}
	if err := place.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquireAll(t, store, []locks.Request{r("4")})
	err := store.RunInTx(t.Context(), nil, func(ctx context.Context, tx *bunstore.Tx) error {
		got, err := tx.Acquire(ctx, r("5"))
		if err == nil {
			lock, err = got, tx.Release(ctx, got.Grant())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "DELETE FROM distributed_lock_waiters")
	exec(t, db, "VACUUM ANALYZE distributed_lock_waiters")

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run("SET plan_cache_mode = force_generic_plan")
	hook.mu.Lock()
	defer hook.mu.Unlock()
	var calls []string
	for statement, args := range hook.sent {
		name := fmt.Sprint("s", len(calls))
		run("PREPARE " + name + " AS " + statement)
		calls = append(calls, "EXECUTE "+name+"("+args+")")
		run("BEGIN")
		run(calls[len(calls)-1])
		run("ROLLBACK")
	}
	if len(calls) != 11 {
		t.Errorf("%d statements about tickets, want 11", len(calls))
	}
	run(`INSERT INTO distributed_lock_waiters (resource, owner, attempt, channel, since, expires_at)
		SELECT 'r', 'w', i::text, 'there', clock_timestamp(), clock_timestamp() + interval '1 hour' FROM generate_series(1, 10000) AS i`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			run("ANALYZE distributed_lock_waiters")
		}
		for _, held := range []bool{false, true} {
			for i, call := range calls {
				run("BEGIN")
				if held {
					run(fmt.Sprintf(`INSERT INTO distributed_locks (resource, owner, token, attempt, acquired_at, expires_at)
						VALUES ('r', 'w', %d, '1', clock_timestamp(), clock_timestamp() + interval '1 hour')`, lock.Token))
				}
				var text string
				if err := conn.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, FORMAT json) "+call).Scan(&text); err != nil {
					t.Fatalf("%s: %v", call, err)
				}
				run("ROLLBACK")
				var plans []struct{ Plan node }
				if err := json.Unmarshal([]byte(text), &plans); err != nil {
					t.Fatal(err)
				}
				if rows := plans[0].Plan.read(); rows > 60 {
					t.Errorf("analyzed %t, held %t: %s reads %v rows\n%s", analyzed, held, call, rows, text)
				} else {
					t.Logf("s%d %v rows", i, rows)
				}
			}
		}
	}
}
