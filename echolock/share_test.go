package echolock_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestSharesOverEcho(t *testing.T) {
	e := echo.New()
	store := memstore.New()
	var asked []string
	authorize := func(_ echo.Context, action lockhttp.Action, resource string) error {
		asked = append(asked, string(action)+" "+resource)
		return nil
	}
	if _, err := echolock.Mount(e.Group("/locks"), echolock.RoutesConfig{Store: store, Authorize: authorize}); err != nil {
		t.Fatal(err)
	}
	if err := echolock.MountAdmin(e.Group("/admin/locks"), echolock.AdminConfig{Store: store, Authorize: authorize}); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"w2", "w1"} {
		w := send(e, "POST", "/locks/a%2Fb", fmt.Sprintf(`{"owner":%q,"slots":2}`, owner), "Content-Type: application/json")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"slots":2`) {
			t.Errorf("acquire = %d %s", w.Code, w.Body)
		}
	}
	w := send(e, "POST", "/locks/a%2Fb", `{"owner":"w3","shared":true}`, "Content-Type: application/json")
	wantStatus(t, w, http.StatusConflict, lockhttp.TypeOtherSlots)
	asked = nil
	for target, want := range map[string]string{
		"/locks/a%2Fb/holders":          "",
		"/locks/a%2Fb/holders?owner=w1": "w1",
		"/admin/locks/a%2Fb/holders":    "w2 w1",
	} {
		w := send(e, "GET", target, "")
		var owners []string
		for _, match := range regexp.MustCompile(`"owner":"(\w+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			owners = append(owners, match[1])
		}
		if got := strings.Join(owners, " "); w.Code != http.StatusOK || got != want || !strings.Contains(w.Body.String(), `"slots":2`) {
			t.Errorf("%s: %d %s, want the owners %q", target, w.Code, w.Body, want)
		}
		if w := send(e, "HEAD", target, ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
			t.Errorf("HEAD %s: %d %s", target, w.Code, w.Body)
		}
		for _, one := range asked {
			if strings.HasPrefix(target, "/admin") != strings.HasPrefix(one, "list_holders ") || !strings.HasSuffix(one, "holders a/b") {
				t.Errorf("%s asked %q", target, one)
			}
		}
		asked = nil
	}
}

// otherSlots is the answer to a request whose own name has a share of the key.
func otherSlots(_ context.Context, request locks.Request) (locks.Lock, error) {
	return locks.Lock{}, &locks.SlotsError{Resource: request.Resource, Held: locks.Shared}
}

func TestAShareOfTheRequestsOwnNameIsAConflict(t *testing.T) {
	for name, change := range map[string]func(*guardRig, *echolock.Config){
		"":          func(*guardRig, *echolock.Config) {},
		"fail open": func(_ *guardRig, config *echolock.Config) { config.FailOpen = true },
		"waiting":   func(_ *guardRig, config *echolock.Config) { config.WaitTimeout = time.Minute },
		"in a transaction": func(rig *guardRig, config *echolock.Config) {
			config.Tx = &database{Transactor: rig.store, begin: &locks.SlotsError{Held: locks.Shared}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newGuardRig(t)
				rig.store.acquire = otherSlots
				rig.pay(mustNotRun(t), func(config *echolock.Config) { change(rig, config) })
				began := time.Now()
				w := rig.post("a1")
				wantProblem(t, w, http.StatusConflict, lockhttp.TypeOtherSlots)
				if w.Header().Get("Retry-After") != "" || time.Since(began) != 0 {
					t.Errorf("Retry-After = %q after %v", w.Header().Get("Retry-After"), time.Since(began))
				}
			})
		})
	}
}

// Readers of a key, whom only the host can make, hold it as anybody does.
func TestAKeyThatIsSharedIsHeld(t *testing.T) {
	rig := newGuardRig(t)
	rig.hold("a1", locks.WithShared())
	rig.pay(mustNotRun(t))
	w := rig.post("a1")
	if got := wantProblem(t, w, http.StatusLocked, lockhttp.TypeHeld); got.Holder == nil || !strings.Contains(w.Body.String(), `"holder":{"shared":true,`) {
		t.Errorf("body = %s", w.Body)
	}
}
