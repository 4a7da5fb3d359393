package lockhttp

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

type resourceHandler = func(w http.ResponseWriter, r *http.Request, resource string)

// handler is a few routes for net/http, without the path cleaning that a mux would do.
type handler []struct {
	pattern string
	methods map[string]resourceHandler
}

// ServeHTTP looks for the route that fits. What cannot be written has nobody to go to.
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if r.URL.RawPath != "" && r.URL.RawPath != path { // only one of the two was rewritten
		_ = PathProblem().Write(w, r)
		return
	}
	for _, route := range h {
		segment, _, ok := fit(path, route.pattern)
		if !ok {
			continue
		}
		serve, ok := route.methods[r.Method]
		if !ok {
			w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(route.methods)), ", "))
			_ = wrongMethod.problem(always).Write(w, r)
			return
		}
		resource, err := url.PathUnescape(segment)
		if err != nil {
			_ = PathProblem().Write(w, r)
			return
		}
		serve(w, r, resource)
		return
	}
	_ = noRoute.problem(always).Write(w, r)
}
