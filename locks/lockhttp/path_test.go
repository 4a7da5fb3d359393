package lockhttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

func TestPathResource(t *testing.T) {
	for _, row := range []struct{ path, pattern, want string }{
		{"/locks/job:42", "/locks/:resource", "job:42"},
		{"/locks/a%2Fb", "/locks/:resource", "a/b"},
		{"/locks/a%252Fb", "/locks/:resource", "a%2Fb"},
		{"/locks/a+b", "/locks/:resource", "a+b"},
		{"/locks/%e4%bd%a0", "/locks/:resource", "你"},
		{"/locks/", "/locks/:resource", ""},
		{"/r", "/:resource", "r"},
		{"/r/renew", "/:resource/renew", "r"},
		{"/t/acme/locks/r", "/t/:tenant/locks/:resource", "r"},
		{"/t/a%2Fb/locks/c%2Fd/renew", "/t/:tenant/locks/:resource/renew", "c/d"},
		{"/t-acme/locks/r", "/t-:tenant/locks/:resource", "r"},
		{"/my%20locks/r", "/my locks/:resource", "r"},
		{"/my%20locks/r", "/my%20locks/:resource", "r"},
		{"/v1:x/r", `/v1\:x/:resource`, "r"},
		{"/x/locks/y", "/:resource/locks/:resource", "y"},
	} {
		got, err := lockhttp.PathResource(row.path, row.pattern)
		if err != nil || got != row.want {
			t.Errorf("PathResource(%q, %q) = %q, %v; want %q", row.path, row.pattern, got, err, row.want)
		}
	}
	for _, row := range []struct{ path, pattern string }{
		{"/locks/a/b", "/locks/:resource"},
		{"/lock/a", "/locks/:resource"},
		{"/locks", "/locks/:resource"},
		{"/x-acme/locks/r", "/t-:tenant/locks/:resource"},
		{"/a/b/locks/r", "/*/locks/:resource"},
		{"/locks/r", "/locks/r"},
		{"/locks/%zz", "/locks/:resource"},
		{"/%zz/r", "/locks/:resource"},
		{"", "/:resource"},
	} {
		if got, err := lockhttp.PathResource(row.path, row.pattern); !errors.Is(err, lockhttp.ErrPath) {
			t.Errorf("PathResource(%q, %q) = %q, %v; want ErrPath", row.path, row.pattern, got, err)
		}
	}
}

func TestAPathThatWasHalfRewrittenIs400(t *testing.T) {
	g := newRig(t)
	r := httptest.NewRequest(http.MethodGet, "/locks/a%2Fb", nil)
	r.URL.Path = "/locks/other"
	w := httptest.NewRecorder()
	g.api.Handler("/locks").ServeHTTP(w, r)
	want(t, w, 400, "malformed-request", "resource")
}

func TestHandlerUnderOtherPrefixes(t *testing.T) {
	api, err := lockhttp.New(lockhttp.Config{Store: memstore.New(), Anyone: true})
	if err != nil {
		t.Fatal(err)
	}
	for prefix, target := range map[string]string{"": "/r", "/t/:tenant/locks": "/t/acme/locks/r", "/a/b": "/a/b/r"} {
		w := httptest.NewRecorder()
		api.Handler(prefix).ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		want(t, w, 404, "not-held")
	}
}

func FuzzPathResource(f *testing.F) {
	for _, resource := range []string{"a/b", "a%2Fb", "100%", "你", "..", "a b", "+", ":resource", "*", "\\:", ""} {
		f.Add(resource)
	}
	f.Fuzz(func(t *testing.T, resource string) {
		for _, pattern := range []struct{ before, after string }{{"/locks/", ""}, {"/t/x/", "/renew"}, {"/", ""}} {
			path := pattern.before + url.PathEscape(resource) + pattern.after
			got, err := lockhttp.PathResource(path, pattern.before+":resource"+pattern.after)
			if err != nil || got != resource {
				t.Fatalf("%q → %q → %q, %v", resource, path, got, err)
			}
		}
		// As a path that came over the wire: whatever is found, escapes to a path that finds it again.
		if got, err := lockhttp.PathResource("/locks/"+resource, "/locks/:resource"); err == nil {
			again, err := lockhttp.PathResource("/locks/"+url.PathEscape(got), "/locks/:resource")
			if err != nil || again != got {
				t.Fatalf("%q → %q → %q, %v", resource, got, again, err)
			}
		}
	})
}
