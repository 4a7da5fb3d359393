package fence_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/locks"
)

const (
	accountTable = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER, fence_token INTEGER)"
	reportTable  = "CREATE TABLE reports (site TEXT, day TEXT, body TEXT, created TEXT DEFAULT 'then', token INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (site, day))"
)

// account leaves the token to the table.
type account struct {
	ID      int64 `bun:",pk"`
	Owner   string
	Balance int64
}

// report has a field for the token, and a key of two columns.
type report struct {
	Site    string `bun:",pk"`
	Day     string `bun:",pk"`
	Body    string
	Created string `bun:",nullzero,skipupdate"`
	Token   int64  `bun:",notnull,default:0"`
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 0, NULL), (8, 'bob', 0, 3)")
	const row = "SELECT owner || ' ' || balance || ' ' || fence_token FROM accounts WHERE id = 7"
	for _, step := range []struct {
		name    string
		balance int64
		token   int64
		stale   int64 // the newer token, 0: it is written
		want    string
	}{
		{"the first token", 1, 5, 0, "ada 1 5"},
		{"the same token again", 2, 5, 0, "ada 2 5"},
		{"an older one", 3, 4, 5, "ada 2 5"},
		{"a newer one", 4, 9, 0, "ada 4 9"},
		{"the one before", 5, 5, 9, "ada 4 9"},
		{"the largest", 6, 1<<53 - 1, 0, "ada 6 9007199254740991"},
		{"one below it", 7, 1<<53 - 2, 1<<53 - 1, "ada 6 9007199254740991"},
	} {
		a := account{7, "ada", step.balance}
		err := fence.Update(t.Context(), db, &a, step.token)
		if step.stale == 0 && err != nil {
			t.Errorf("%s: %v", step.name, err)
		} else if step.stale != 0 {
			isStale(t, step.name, err, fence.StaleError{Table: "accounts", Token: step.token, Stored: step.stale})
		}
		if got := scan[string](t, db, row); got != step.want {
			t.Errorf("%s: the row is %q, want %q", step.name, got, step.want)
		}
		if a != (account{7, "ada", step.balance}) {
			t.Errorf("%s: the struct became %+v", step.name, a)
		}
	}
	err := fence.Update(t.Context(), db, &account{ID: 9}, 5)
	if !errors.Is(err, fence.ErrNotFound) || !errors.Is(err, locks.ErrNotFound) || errors.Is(err, locks.ErrLost) {
		t.Errorf("no row: err = %v, want ErrNotFound alone", err)
	}
	if got := scan[string](t, db, "SELECT owner || balance || fence_token FROM accounts WHERE id = 8"); got != "bob03" {
		t.Errorf("another row became %q", got)
	}
}

func TestUpdateOfSomeColumns(t *testing.T) {
	t.Parallel()
	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, NULL)")
	const row = "SELECT owner || ' ' || balance || ' ' || fence_token FROM accounts"
	for _, step := range []struct {
		name    string
		token   int64
		options []fence.Option
		want    string
	}{
		{"a column", 1, []fence.Option{fence.WithColumns("balance")}, "ada 99 1"},
		{"an expression", 2, []fence.Option{fence.WithSet("balance = balance - ?", 9)}, "ada 90 2"},
		{"both", 3, []fence.Option{fence.WithSet("balance = balance - ?", 9), fence.WithColumns("owner")}, "eve 81 3"},
		{"late", 2, []fence.Option{fence.WithSet("balance = balance - ?", 9)}, "eve 81 3"},
		{"a token of one's own", 4, []fence.Option{fence.WithSet("fence_token = 1")}, "eve 81 4"},
	} {
		err := fence.Update(t.Context(), db, &account{7, "eve", 99}, step.token, step.options...)
		if late := step.token < 3 && step.want[:3] == "eve"; (err != nil) != late {
			t.Errorf("%s: err = %v", step.name, err)
		}
		if got := scan[string](t, db, row); got != step.want {
			t.Errorf("%s: the row is %q, want %q", step.name, got, step.want)
		}
	}
}

func TestUpdateOfAModelWithTheToken(t *testing.T) {
	t.Parallel()
	db := open(t, reportTable)
	execSQL(t, db, "INSERT INTO reports (site, day, body) VALUES ('a', '1', 'old'), ('b', '1', 'old')")
	column := fence.WithTokenColumn("token")
	r := report{Site: "a", Day: "1", Body: "new", Created: "now"}
	if err := fence.Update(t.Context(), db, &r, 5, column); err != nil || r.Token != 5 {
		t.Fatalf("Update = %v, the struct's token is %d", err, r.Token)
	}
	late := report{Site: "a", Day: "1", Body: "late", Token: 2}
	isStale(t, "late", fence.Update(t.Context(), db, &late, 4, column), fence.StaleError{Table: "reports", Token: 4, Stored: 5})
	if late.Token != 2 {
		t.Errorf("the late struct's token became %d", late.Token)
	}
	const rows = "SELECT group_concat(site || body || created || token) FROM reports"
	if got, want := scan[string](t, db, rows), "anewthen5,boldthen0"; got != want {
		t.Errorf("the rows are %q, want %q", got, want)
	}

	type pointed struct {
		bun.BaseModel `bun:"table:reports"`
		Site          string `bun:",pk"`
		Day           string `bun:",pk"`
		Token         *int64
	}
	old := int64(1)
	p := pointed{Site: "a", Day: "1", Token: &old}
	if err := fence.Update(t.Context(), db, &p, 4, column); !errors.Is(err, fence.ErrStale) || p.Token != &old || old != 1 {
		t.Errorf("refused: %v, the struct's token is %d", err, *p.Token)
	}
	if err := fence.Update(t.Context(), db, &p, 6, column); err != nil || *p.Token != 6 || old != 1 {
		t.Errorf("written: %v, the struct's token is %d, the caller's number %d", err, *p.Token, old)
	}
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, NULL)")
	if err := fence.Advance(t.Context(), db, &account{ID: 7, Owner: "not written"}, 5); err != nil {
		t.Fatal(err)
	}
	isStale(t, "after it", fence.Update(t.Context(), db, &account{7, "late", 0}, 4), fence.StaleError{Table: "accounts", Token: 4, Stored: 5})
	isStale(t, "backwards", fence.Advance(t.Context(), db, &account{ID: 7}, 4), fence.StaleError{Table: "accounts", Token: 4, Stored: 5})
	if got := scan[string](t, db, "SELECT owner || balance || fence_token FROM accounts"); got != "ada105" {
		t.Errorf("the row is %q, want ada105", got)
	}
}

func TestWritesTellFaultsFromAnswers(t *testing.T) {
	t.Parallel()
	db := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, write := range map[string]func(context.Context, bun.IDB, any, int64, ...fence.Option) error{
		"Update": fence.Update, "Upsert": fence.Upsert, "Advance": fence.Advance,
	} {
		err := write(t.Context(), db, &account{ID: 7}, 5) // no table
		for _, answer := range []error{locks.ErrLost, locks.ErrRetryable, locks.ErrNotFound, locks.ErrInvalid} {
			if err == nil || errors.Is(err, answer) {
				t.Errorf("%s without a table: err = %v, want one that is not %v", name, err, answer)
			}
		}
		if err := write(ctx, db, &account{ID: 7}, 5); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: err = %v, want context.Canceled", name, err)
		}
	}
}

func TestUpdateOnATransactionAndAConnection(t *testing.T) {
	t.Parallel()
	db := open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, 5)")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fence.Update(t.Context(), tx, &account{7, "ada", 20}, 6); err != nil {
		t.Errorf("in a transaction: %v", err)
	}
	isStale(t, "in a transaction", fence.Update(t.Context(), tx, &account{ID: 7}, 5), fence.StaleError{Table: "accounts", Token: 5, Stored: 6})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	isInvalid(t, "transaction is over", fence.Update(t.Context(), tx, &account{ID: 7}, 6), "transaction")

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := fence.Update(t.Context(), conn, &account{7, "ada", 30}, 5); err != nil {
		t.Errorf("on a connection, after the rollback of a newer one: %v", err)
	}

	// A transaction that has read before another wrote cannot write in SQLite.
	tx, err = db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	_ = scan[int](t, tx, "SELECT balance FROM accounts")
	if err := fence.Update(t.Context(), conn, &account{7, "ada", 40}, 7); err != nil {
		t.Fatal(err)
	}
	if err := fence.Update(t.Context(), tx, &account{7, "ada", 50}, 6); !errors.Is(err, locks.ErrStaleSnapshot) {
		t.Errorf("with an old snapshot: %v, want ErrStaleSnapshot", err)
	}
}

type note struct {
	ID        int64 `bun:",pk"`
	Body      string
	DeletedAt time.Time `bun:",soft_delete,nullzero"`
}

const noteTable = "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT, deleted_at TIMESTAMP, fence_token INTEGER)"

func TestUpdateOfASoftDeletedRow(t *testing.T) {
	t.Parallel()
	db := open(t, noteTable)
	execSQL(t, db, "INSERT INTO notes VALUES (7, 'old', current_timestamp, 5)")
	if err := fence.Update(t.Context(), db, &note{ID: 7, Body: "new"}, 6); !errors.Is(err, fence.ErrNotFound) {
		t.Errorf("Update = %v, want ErrNotFound", err)
	}
}

// Writers in any order: the token never goes down, and what stays is the newest one's.
func TestTokensNeverGoDown(t *testing.T) {
	t.Parallel()
	type record struct {
		ID    int64 `bun:",pk"`
		Value int64
	}
	for name, write := range map[string]func(context.Context, bun.IDB, any, int64, ...fence.Option) error{
		"Update": fence.Update, "Upsert": fence.Upsert,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, "CREATE TABLE records (id INTEGER PRIMARY KEY, value INTEGER, fence_token INTEGER)",
				`CREATE TRIGGER falls BEFORE UPDATE ON records WHEN NEW.fence_token < OLD.fence_token OR NEW.value <> NEW.fence_token
				 BEGIN SELECT raise(ABORT, 'the token went down'); END`)
			if name == "Update" {
				execSQL(t, db, "INSERT INTO records (id) VALUES (1)")
			}
			tokens := make(chan int64, 200)
			for _, n := range rand.Perm(200) {
				tokens <- int64(n + 1)
			}
			close(tokens)
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					for token := range tokens {
						err := write(t.Context(), db, &record{ID: 1, Value: token}, token)
						var stale *fence.StaleError
						if errors.As(err, &stale) && stale.Stored > token && token < 200 {
							continue
						}
						if err != nil {
							t.Errorf("token %d: %v", token, err)
						}
					}
				})
			}
			group.Wait()
			if got := scan[string](t, db, "SELECT value || ' ' || fence_token FROM records"); got != "200 200" {
				t.Errorf("what stays is %q, want that of token 200", got)
			}
		})
	}
}

// replica is a resolver that sends SELECTs to another database, which is behind.
type replica struct{ behind *bun.DB }

func (r replica) Close() error { return nil }

func (r replica) ResolveConn(_ context.Context, query bun.Query) bun.IConn {
	if query.Operation() == "SELECT" {
		return r.behind.DB
	}
	return nil
}

// app is a host's own type for its database.
type app struct{ *bun.DB }

func TestARefusalIsNotAReplicasAnswer(t *testing.T) {
	t.Parallel()
	behind, db := open(t, accountTable), open(t, accountTable)
	execSQL(t, db, "INSERT INTO accounts VALUES (7, 'ada', 10, 5)")
	routed := bun.NewDB(db.DB, db.Dialect(), bun.WithConnResolver(replica{behind}))
	for name, db := range map[string]bun.IDB{"database": routed, "host's type": app{routed}} {
		isStale(t, "Update, "+name, fence.Update(t.Context(), db, &account{ID: 7}, 4), fence.StaleError{Table: "accounts", Token: 4, Stored: 5})
		isStale(t, "Upsert, "+name, fence.Upsert(t.Context(), db, &account{ID: 7}, 4), fence.StaleError{Table: "accounts", Token: 4, Stored: 5})
	}
}
