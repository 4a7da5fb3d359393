package lockhttp_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestTheAuthorizerDecidesOnTheDecodedResource(t *testing.T) {
	var asked []string
	g := newRig(t, func(c *lockhttp.Config) {
		c.Anyone = false
		c.Authorize = func(_ *http.Request, action lockhttp.Action, resource string) error {
			asked = append(asked, fmt.Sprintf("%s %s", action, resource))
			if strings.HasPrefix(resource, "admin/") {
				return errors.New("secret reason")
			}
			return nil
		}
	})
	want(t, g.send("POST", "/locks/admin%2Fx", `{"owner":"w1"}`), 403, "forbidden")
	want(t, g.send("GET", "/locks/%61dmin%2fx", ""), 403, "forbidden")
	want(t, g.send("HEAD", "/locks/admin%2Fx", ""), 403)
	want(t, g.send("POST", "/locks/admin%2Fx/renew", `{"owner":"w1"}`), 403, "forbidden")
	want(t, g.send("DELETE", "/locks/admin%2Fx?owner=w1", ""), 403, "forbidden")
	want(t, g.send("POST", "/locks/admin%252Fx", `{"owner":"w1"}`), 200)
	wanted := []string{"acquire admin/x", "get admin/x", "get admin/x", "renew admin/x", "release admin/x", "acquire admin%2Fx"}
	if fmt.Sprint(asked) != fmt.Sprint(wanted) {
		t.Errorf("asked %q, want %q", asked, wanted)
	}
	// Who may not, is not told what is wrong with the body either; and nobody is asked about what is no resource.
	asked = nil
	want(t, g.send("POST", "/locks/admin%2Fx", `{`), 403, "forbidden")
	want(t, g.send("POST", "/locks/%2E%2E", `{`), 422, "invalid-field", "resource")
	want(t, g.send("POST", "/locks/http:x", `{`), 403, "reserved-resource", "resource")
	if len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
}

func TestUnauthenticatedIs401WithAChallenge(t *testing.T) {
	for challenge, wanted := range map[string]string{"": "Bearer", `Basic realm="x"`: `Basic realm="x"`} {
		g := newRig(t, func(c *lockhttp.Config) {
			c.Anyone, c.Challenge = false, challenge
			c.Authorize = func(*http.Request, lockhttp.Action, string) error {
				return fmt.Errorf("secret: %w", lockhttp.ErrUnauthenticated)
			}
		})
		w := g.send("GET", "/locks/r", "")
		want(t, w, 401, "unauthenticated")
		if got := w.Header().Get("WWW-Authenticate"); got != wanted {
			t.Errorf("WWW-Authenticate = %q, want %q", got, wanted)
		}
	}
}

func TestAPanicOfTheAuthorizerPassesThrough(t *testing.T) {
	g := newRig(t, func(c *lockhttp.Config) {
		c.Anyone = false
		c.Authorize = func(*http.Request, lockhttp.Action, string) error { panic(http.ErrAbortHandler) }
	})
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("recovered %v", err)
		}
	}()
	g.ServeHTTP(httptest.NewRecorder(), call{"GET", "/locks/r", "", nil}.request())
	t.Error("no panic")
}

func TestAListAsksAboutThePrefix(t *testing.T) {
	var asked string
	admin, err := lockhttp.NewAdmin(lockhttp.AdminConfig{
		Store: memstore.New(),
		Authorize: func(_ *http.Request, action lockhttp.Action, resource string) error {
			asked = fmt.Sprintf("%s %q", action, resource)
			return errors.New("no")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, wanted := range map[string]string{
		"/a?prefix=t%2F": `list "t/"`, "/a": `list ""`, "/a/t%2F": `inspect "t/"`,
	} {
		w := httptest.NewRecorder()
		admin.Handler("/a").ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		want(t, w, 403, "forbidden")
		if asked != wanted {
			t.Errorf("%s asked %s, want %s", target, asked, wanted)
		}
	}
	// Who may not, is not told what is wrong with the request; and a name that is none is not asked about.
	for target, wanted := range map[string]string{
		"/a?limit=x": `list ""`, "/a?limit=0&prefix=t%2F": `list "t/"`, "/a?cursor=!": `list ""`, "/a?prefix=%FF": `list ""`,
		"/a?prefix=a&prefix=b": `list ""`, "/a?prefix=t&x=%zz": `list "t"`, "/a?prefix=t&token=1": `list "t"`, "/a/%2E": `inspect ""`,
		"/a/%FF": `inspect ""`, "/a/r?limit=1": `inspect "r"`,
	} {
		w := httptest.NewRecorder()
		admin.Handler("/a").ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		want(t, w, 403, "forbidden")
		if asked != wanted {
			t.Errorf("%s asked %s, want %s", target, asked, wanted)
		}
	}
	w := httptest.NewRecorder()
	admin.Handler("/a").ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/a/r", nil))
	want(t, w, 403, "forbidden")
	if wanted := `force_release "r"`; asked != wanted {
		t.Errorf("asked %s, want %s", asked, wanted)
	}
}
