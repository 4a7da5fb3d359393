package integration_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

func containsAny(text string, parts ...string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// The gate's key is the same for every client of a table, in every release: two releases that run at once must exclude
// each other. It depends on the table's oid, so the vectors are of the hash itself.
func TestGateKeysAreFrozen(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	for _, vector := range []struct {
		resource string
		seed     int64
		want     int64
	}{
		{"job:42", 16384, goldenJob42},
		{"r\u00e9sum\u00e9 \U0001F512", 16384, goldenUnicode},
		{strings.Repeat("x", 512), 4294967295, goldenLong},
	} {
		if got := scan[int64](t, db, `SELECT hashtextextended(?::text COLLATE "C", ?::bigint)`, vector.resource, vector.seed); got != vector.want {
			t.Errorf("key of %.10q with seed %d is %d, want %d", vector.resource, vector.seed, got, vector.want)
		}
	}
}

const (
	goldenJob42   int64 = 4495078042392746491
	goldenUnicode int64 = 8205902352878426777
	goldenLong    int64 = -335607229037386691
)

// Resources that collide in 32 bits are two resources. A collision of the 64-bit gate, here any session's lock on the
// same number, may answer "held" and never grants.
func TestGateCollisions(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	store := newStore(t, db)
	pair := scan[string](t, db, `SELECT min(n) || ' ' || max(n) FROM (SELECT 'r' || i AS n FROM generate_series(1, 200000) AS i) AS names
		GROUP BY hashtext(n) HAVING count(*) > 1 LIMIT 1`)
	one, two, _ := strings.Cut(pair, " ")
	acquire(t, store, request(one, "w1"))
	acquire(t, store, request(two, "w2"))

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lock := `SELECT pg_advisory_lock(hashtextextended('other' COLLATE "C", 'distributed_locks'::regclass::oid::bigint))`
	if _, err := conn.ExecContext(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	_, err = store.Acquire(t.Context(), request("other", "w1"))
	var held *locks.HeldError
	if !errors.As(err, &held) || held.Holder != nil {
		t.Errorf("Acquire behind a closed gate = %v, want held by nobody known", err)
	}
	if _, err := conn.ExecContext(t.Context(), strings.Replace(lock, "pg_advisory_lock", "pg_advisory_unlock", 1)); err != nil {
		t.Fatal(err)
	}
	acquire(t, store, request("other", "w1"))
}

// A table that is named with its schema and the same one found by the search path have one gate and one truth.
func TestSchemaAndSearchPathAreOneTable(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", migrated(t, postgres.Shared(t)))
	acquire(t, newStore(t, db), request("job:42", "w1"))
	_, err := newStore(t, db, bunstore.WithSchema("public")).Acquire(t.Context(), request("job:42", "w2"))
	if !errors.Is(err, locks.ErrHeld) {
		t.Errorf("err = %v, want held", err)
	}
}
