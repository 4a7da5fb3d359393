package bunstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/locks"
)

func request(resource, owner string) locks.Request {
	return locks.Request{Resource: resource, Owner: owner, Attempt: "attempt of " + owner, TTL: time.Minute}
}

func acquire(tb testing.TB, store *bunstore.Store, r locks.Request) locks.Lock {
	tb.Helper()
	lock, err := store.Acquire(tb.Context(), r)
	if err != nil {
		tb.Fatalf("Acquire(%+v): %v", r, err)
	}
	return lock
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	db := openSQLite(t, filepath.Join(t.TempDir(), "leases.db"))
	other := bun.NewDB(db.DB, schema.NewNopQueryGen().Dialect())
	for name, test := range map[string]struct {
		db     *bun.DB
		option bunstore.Option
		field  string
	}{
		"nil db":        {nil, bunstore.WithTable("t"), "db"},
		"other dialect": {other, bunstore.WithTable("t"), "dialect"},
		"nil option":    {db, nil, "option"},
		"table":         {db, bunstore.WithTable(""), "table"},
		"another's":     {db, bunstore.WithTable("jobs_tokens"), "table"},
		"schema":        {db, bunstore.WithSchema("app"), "schema"},
		"call limit":    {db, bunstore.WithCallLimit(0), "call limit"},
		"busy limit":    {db, bunstore.WithBusyLimit(-1), "busy limit"},
		"nil hook":      {db, bunstore.WithQueryHook(nil), "query hook"},
	} {
		_, err := bunstore.New(test.db, test.option)
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: err = %v, want an InvalidError for %q", name, err, test.field)
		}
	}
}

// faults calls every method of the store and returns the errors by its name.
func faults(ctx context.Context, store *bunstore.Store) map[string]error {
	grant := locks.Grant{Resource: "job:42", Owner: "w1", Token: 1}
	errs := map[string]error{}
	_, errs["Acquire"] = store.Acquire(ctx, request("job:42", "w1"))
	_, errs["Renew"] = store.Renew(ctx, grant, time.Minute)
	errs["Release"] = store.Release(ctx, grant)
	errs["ReleaseAttempt"] = store.ReleaseAttempt(ctx, "job:42", "w1", "a")
	_, errs["Get"] = store.Get(ctx, "job:42")
	_, errs["List"] = store.List(ctx, locks.ListQuery{})
	_, errs["Purge"] = store.Purge(ctx, 10)
	_, errs["ForceRelease"] = store.ForceRelease(ctx, "job:42", 1)
	_, errs["AcquireAll"] = store.AcquireAll(ctx, []locks.Request{request("job:42", "w1"), request("job:43", "w1")})
	errs["InTx"] = store.InTx(ctx, func(ctx context.Context, tx locks.Tx) error { return tx.Guard(ctx, grant) })
	return errs
}

// A fault of the database is never an answer: not held, not lost, not "not found".
func TestFaultsAreNotAnswers(t *testing.T) {
	open := func(t *testing.T) *bun.DB { return openSQLite(t, filepath.Join(t.TempDir(), "leases.db")) }
	for name, broken := range map[string]func(t *testing.T) (context.Context, *bun.DB, error){
		"missing table": func(t *testing.T) (context.Context, *bun.DB, error) { return t.Context(), open(t), nil },
		"closed database": func(t *testing.T) (context.Context, *bun.DB, error) {
			db := migrated(t)
			db.Close()
			return t.Context(), db, nil
		},
		"ended context": func(t *testing.T) (context.Context, *bun.DB, error) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, migrated(t), context.Canceled
		},
		"full pool": func(t *testing.T) (context.Context, *bun.DB, error) {
			db := migrated(t)
			db.SetMaxOpenConns(1)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			t.Cleanup(cancel)
			return ctx, db, context.DeadlineExceeded
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, db, want := broken(t)
			for method, err := range faults(ctx, newStore(t, db)) {
				if err == nil || want != nil && !errors.Is(err, want) {
					t.Errorf("%s: err = %v, want %v", method, err, want)
				}
				for _, answer := range []error{locks.ErrHeld, locks.ErrLost, locks.ErrNotFound, locks.ErrInvalid, locks.ErrRetryable} {
					if errors.Is(err, answer) {
						t.Errorf("%s: the fault %v is reported as %v", method, err, answer)
					}
				}
			}
		})
	}
}

// A store's own limit ends a call whose caller gave none.
func TestCallLimitEndsACall(t *testing.T) {
	db := migrated(t)
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	store := newStore(t, db, bunstore.WithCallLimit(20*time.Millisecond))
	if _, err := store.Get(t.Context(), "job:42"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want context.DeadlineExceeded", err)
	}
}

type recordingHook struct {
	mu            sync.Mutex
	before, after []*bun.QueryEvent
}

func (h *recordingHook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before = append(h.before, event)
	return ctx
}

func (h *recordingHook) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after = append(h.after, event)
}

func TestQueryHookSeesTheStatements(t *testing.T) {
	db, hook := migrated(t), new(recordingHook)
	store := newStore(t, db, bunstore.WithQueryHook(hook))
	acquire(t, store, request("job:42", "w1"))
	if len(hook.before) != 2 || len(hook.after) != 2 {
		t.Fatalf("hook saw %d and %d statements, want the read and the upsert", len(hook.before), len(hook.after))
	}
	event := hook.after[1]
	if event.Operation() != "INSERT" || event.DB != db || len(event.QueryArgs) != 5 || event.QueryArgs[0] != "job:42" || event.StartTime.IsZero() {
		t.Errorf("event = %+v", event)
	}
	execSQL(t, db, "DROP TABLE distributed_locks")
	if _, err := store.Get(t.Context(), "job:42"); err == nil || hook.after[2].Err == nil {
		t.Errorf("Get = %v, hook was told %v; want the fault for both", err, hook.after[2].Err)
	}
}

// replica is what a host routes its reads to: here one that must never be asked.
type replica struct{ t *testing.T }

func (r replica) ResolveConn(_ context.Context, query bun.Query) bun.IConn {
	r.t.Errorf("a %s was sent to the replicas", query.Operation())
	return nil
}
func (replica) Close() error { return nil }

func TestLeasesAreNeverReadFromAReplica(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leases.db")
	if err := bunstore.Migrate(t.Context(), openSQLite(t, file)); err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(openSQLite(t, file).DB, sqlitedialect.New(), bun.WithConnResolver(replica{t}))
	for method, err := range faults(t.Context(), newStore(t, db)) {
		if err != nil && !errors.Is(err, locks.ErrLost) && !errors.Is(err, locks.ErrNotFound) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestTwoTablesAreTwoWorlds(t *testing.T) {
	db := migrated(t)
	if err := bunstore.Migrate(t.Context(), db, bunstore.WithTable(`odd "name".x`)); err != nil {
		t.Fatal(err)
	}
	one, two := newStore(t, db), newStore(t, db, bunstore.WithTable(`odd "name".x`))
	acquire(t, one, request("job:42", "w1"))
	acquire(t, two, request("job:42", "w2"))
}

func TestModelReadsWhatTheStoreWrote(t *testing.T) {
	db := migrated(t)
	r := request("job:42", "w1")
	r.Metadata = []byte(`{"by": "cron"}`)
	lock := acquire(t, newStore(t, db), r)
	var rows []bunstore.Row
	err := db.NewSelect().Model(&rows).Where("expires_at > ?", bunstore.Instant{Time: time.Now()}).Scan(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatalf("select: %v, %d rows", err, len(rows))
	}
	got := rows[0]
	if got.ID != lock.ID || got.Resource != "job:42" || got.Owner != "w1" || got.Token != lock.Token ||
		!got.AcquiredAt.Equal(lock.AcquiredAt) || !got.ExpiresAt.Equal(lock.ExpiresAt) || string(got.Metadata) != string(r.Metadata) {
		t.Errorf("row = %+v, want %+v", got, lock)
	}
}
