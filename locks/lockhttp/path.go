package lockhttp

import (
	"errors"
	"net/url"
	"strings"
)

// ErrPath is [PathResource]'s answer when the path does not fit the pattern, or does not tell the resource.
var ErrPath = errors.New("lockhttp: path does not fit the route")

// PathResource finds the resource in a request's path. The path is [url.URL.EscapedPath], the pattern the route that
// it came in by, as routers write it: "/t/:tenant/locks/:resource/renew". The last parameter is the resource. Paths are
// compared segment by segment, and the resource's segment is unescaped exactly once: %2F is a slash inside the name,
// %252F is the three characters %2F, and + is a plus.
//
// It answers [ErrPath] when the path does not fit, also for every pattern with a *. Whether the resource keeps the rules
// is looked at by the methods of [API] and [Admin].
func PathResource(escapedPath, pattern string) (string, error) {
	segment, found, ok := fit(escapedPath, pattern)
	if !ok || !found {
		return "", ErrPath
	}
	resource, err := url.PathUnescape(segment)
	if err != nil {
		return "", ErrPath
	}
	return resource, nil
}

// fit compares path and pattern and returns the path's segment where the pattern's last parameter stands, if it has one.
func fit(escapedPath, pattern string) (segment string, found, ok bool) {
	if strings.Contains(pattern, "*") {
		return "", false, false
	}
	route, path := strings.Split(pattern, "/"), strings.Split(escapedPath, "/")
	if len(route) != len(path) {
		return "", false, false
	}
	for i := range route {
		text, parameter := readSegment(route[i])
		switch {
		case parameter && text == "":
			segment, found = path[i], true
		case !segmentFits(path[i], text, parameter):
			return "", false, false
		}
	}
	return segment, found, true
}

// readSegment returns a route segment's fixed text (what stands before its parameter, if there is one) and whether it
// has a parameter. \: is a colon.
func readSegment(segment string) (text string, parameter bool) {
	var fixed strings.Builder
	for i := 0; i < len(segment); i++ {
		switch {
		case segment[i] == '\\' && i+1 < len(segment) && segment[i+1] == ':':
			i++
			fixed.WriteByte(':')
		case segment[i] == ':':
			return fixed.String(), true
		default:
			fixed.WriteByte(segment[i])
		}
	}
	return fixed.String(), false
}

// segmentFits compares a segment of a path with a route's, as it is and unescaped, since routers do one or the other.
func segmentFits(segment, text string, open bool) bool {
	plain, err := url.PathUnescape(segment)
	if err != nil {
		return false
	}
	if open {
		return strings.HasPrefix(segment, text) || strings.HasPrefix(plain, text)
	}
	return segment == text || plain == text
}

// PathProblem is the answer to a request whose path does not tell its resource without doubt.
func PathProblem() Problem {
	return refusalOf(refuse(malformed, "resource",
		"The path does not tell the resource without doubt: it was rewritten on its way, or has raw characters that must be "+
			"percent-encoded, like blanks, quotes, < > ^ { | } and all that is not ASCII.")).problem(always)
}
