package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/locks"
)

// Through every way of both drivers to send a statement, and under a stricter default isolation.
func TestAcquireAllKeepsEveryByte(t *testing.T) {
	t.Parallel()
	dsn := migrated(t, postgres.Shared(t))
	for name, handle := range handles {
		t.Run(name, func(t *testing.T) {
			db := open(t, handle.driver, withParameters(dsn, handle.parameters))
			exec(t, db, "TRUNCATE distributed_locks")
			store := newStore(t, db)
			all := strangeRequests()
			granted := acquireAll(t, store, all)
			for i, want := range all {
				got := granted[i]
				if got.Resource != want.Resource || got.Owner != want.Owner || string(got.Metadata) != string(want.Metadata) ||
					got.ExpiresAt.Sub(got.AcquiredAt) != want.TTL || got.Remaining <= 0 || got.Remaining > want.TTL {
					t.Errorf("request %d: got %+v\nwant %+v", i, got, want)
				}
			}
			for i, again := range acquireAll(t, store, all) {
				if again.Grant() != granted[i].Grant() || again.ID != granted[i].ID || !again.AcquiredAt.Equal(granted[i].AcquiredAt) ||
					string(again.Metadata) != string(all[i].Metadata) {
					t.Errorf("the retry %d got %+v\nwant %+v", i, again, granted[i])
				}
			}
			for i := range all { // a new attempt of the same owners
				all[i].Attempt, all[i].Metadata = "next", nil
				all[i].TTL += time.Hour
			}
			for i, next := range acquireAll(t, store, all) {
				if next.Token <= granted[i].Token || next.ID != granted[i].ID || next.Metadata != nil || next.ExpiresAt.Sub(next.AcquiredAt) != all[i].TTL {
					t.Errorf("the next grant %d is %+v\nafter %+v", i, next, granted[i])
				}
			}
			for _, bad := range []string{"a\x00b", "a\nb", "\xff", strings.Repeat("x", 513)} {
				if _, err := store.AcquireAll(t.Context(), requests("w1", "fine", bad)); !errors.Is(err, locks.ErrInvalid) {
					t.Errorf("%.10q: err = %v, want ErrInvalid", bad, err)
				}
			}
			if n := scan[int](t, db, "SELECT count(*) FROM distributed_locks"); n != len(all) {
				t.Errorf("%d rows, want %d", n, len(all))
			}
		})
	}
}

// strangeRequests are a hundred requests that differ in everything, in no order.
func strangeRequests() []locks.Request {
	names := []string{
		`it's`, `"quoted"`, `back\slash`, `\u0041`, `$1`, `$tag$`, `?`, `?0`, `:name`, `%s`, "\U0001F512", "\u00e9", "e\u0301", "E\u0301", "a ", " a", "A",
		`'); DROP TABLE distributed_locks; --`, `<b>&amp;`, "\u2028", "\ufeff", "\ufffd", "\U0010ffff", `{"a":1}`, `null`,
	}
	for i := len(names); i < locks.MaxAcquireAll; i++ {
		names = append(names, fmt.Sprintf("%03d%s", i, strings.Repeat("\u00e9", 254))+"x") // 512 bytes
	}
	all := make([]locks.Request, len(names))
	for i, name := range names {
		all[i] = locks.Request{
			Resource: name, Owner: fmt.Sprintf("w%d %.20s", i, name), Attempt: fmt.Sprintf("%.20s %d", name, i),
			TTL: time.Minute + time.Duration(i)*time.Millisecond,
		}
		if i%3 != 0 {
			text, _ := json.Marshal(name)
			all[i].Metadata = json.RawMessage(" {\"of\" :\t" + string(text) + `, "n":1.50, "n":1e2, "s":"\u00e9\u0000\ud83d\udd12\\"}` + "\n")
		}
	}
	slices.Reverse(all)
	return all
}
