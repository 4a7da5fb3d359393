package lockhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

// An operator whose connection breaks: the release is done, and told; one that came late is told when it is known.
func TestForceReleaseIsAuditedWhateverHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stub{Store: memstore.New()}
		var mu sync.Mutex
		var audits []lockhttp.ForceRelease
		admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
			Store:     store,
			Authorize: func(*http.Request, lockhttp.Action, string) error { return nil },
			Audit: func(ctx context.Context, release lockhttp.ForceRelease) {
				if err := ctx.Err(); err != nil {
					t.Errorf("the audit's context has ended: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				audits = append(audits, release)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		g := &rig{t: t, store: store, Handler: admin.Handler("/a")}
		token := g.acquire("r", "w1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := call{"DELETE", fmt.Sprintf("/a/r?reason=x&token=%d", token), "", nil}.request().WithContext(ctx)
		g.ServeHTTP(deaf{httptest.NewRecorder()}, r)
		if len(audits) != 1 || audits[0].Err != nil || g.holder("r") != "" {
			t.Errorf("audits = %+v, holder %q", audits, g.holder("r"))
		}

		audits = nil
		token = g.acquire("r", "w1")
		store.force = func(ctx context.Context, resource string, token int64) (locks.Lock, error) {
			time.Sleep(20 * time.Second)
			return store.Store.ForceRelease(context.WithoutCancel(ctx), resource, token)
		}
		want(t, g.send("DELETE", fmt.Sprintf("/a/r?reason=x&token=%d", token), ""), 503, "unavailable")
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(audits) != 2 || !errors.Is(audits[0].Err, context.DeadlineExceeded) || audits[1].Err != nil || audits[1].Released.Token != token {
			t.Errorf("audits = %+v", audits)
		}
	})
}

// The second call of an audit runs where nobody else could recover, and not before the first has returned.
func TestALateAuditIsInOrderAndMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &stub{Store: memstore.New()}
		var log bytes.Buffer
		var told []string
		admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
			Store:     store,
			Authorize: func(*http.Request, lockhttp.Action, string) error { return nil },
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
			Audit: func(_ context.Context, release lockhttp.ForceRelease) {
				if release.Err == nil {
					told = append(told, "released")
					panic("boom")
				}
				time.Sleep(time.Minute) // the outcome comes meanwhile
				told = append(told, "not known")
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		g := &rig{t: t, store: store, Handler: admin.Handler("/a")}
		token := g.acquire("r", "w1")
		store.force = func(ctx context.Context, resource string, token int64) (locks.Lock, error) {
			time.Sleep(20 * time.Second)
			return store.Store.ForceRelease(context.WithoutCancel(ctx), resource, token)
		}
		want(t, g.send("DELETE", fmt.Sprintf("/a/r?reason=x&token=%d", token), ""), 503, "unavailable")
		synctest.Wait()
		if got := fmt.Sprint(told); got != "[not known released]" {
			t.Errorf("told %s", got)
		}
		if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "stack=") {
			t.Errorf("log = %s", log.String())
		}
	})
}
