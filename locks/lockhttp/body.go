package lockhttp

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// MaxBodyBytes is the largest request body.
const MaxBodyBytes = 16 << 10

// errNoBody is readBody's answer where there is none and none is needed.
var errNoBody = errors.New("lockhttp: no body")

// readBody reads the request's JSON object. Where the body is optional, errNoBody says that there is none.
func readBody(r *http.Request, known shape, optional bool) (map[string]member, error) {
	if optional && (r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0) {
		return nil, errNoBody
	}
	if !optional { // before reading: who sends something else need not send it all
		if err := checkMediaType(r.Header); err != nil {
			return nil, err
		}
	}
	data, err := readAll(r)
	if err != nil {
		return nil, err
	}
	if optional {
		if len(data) == 0 { // chunked, and nothing in it
			return nil, errNoBody
		}
		if err := checkMediaType(r.Header); err != nil {
			return nil, err
		}
	}
	return readObject(data, known)
}

// readAll reads the body to its end, also so that net/http notices from here on when the client goes away.
func readAll(r *http.Request) ([]byte, error) {
	large := refuse(tooLarge, "body", fmt.Sprintf("The body must be at most %d bytes.", MaxBodyBytes))
	if r.ContentLength > MaxBodyBytes {
		return nil, large
	}
	if r.Body == nil {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, MaxBodyBytes+1))
	var limited *http.MaxBytesError // the host's own, smaller limit
	switch {
	case len(data) > MaxBodyBytes:
		return nil, large
	case errors.As(err, &limited):
		return nil, refuse(tooLarge, "body", "The body is larger than this server takes.")
	case err != nil:
		return nil, &refusalError{reason: malformed, field: "body", detail: "The body did not arrive whole.", cause: err}
	}
	return data, nil
}

// checkMediaType takes application/json in UTF-8, as it is. That a body needs this type also keeps forms of other
// sites out: a browser asks this server's leave before it sends such a request.
func checkMediaType(header http.Header) error {
	for _, coding := range header.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return refuse(mediaType, "Content-Encoding", "The body must not be compressed.")
		}
	}
	types := header.Values("Content-Type")
	if len(types) != 1 {
		return refuse(mediaType, "Content-Type", "Content-Type must be given, once, as application/json.")
	}
	name, parameters, err := mime.ParseMediaType(types[0])
	if err != nil || name != "application/json" {
		return refuse(mediaType, "Content-Type", "Content-Type must be application/json.")
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return refuse(mediaType, "Content-Type", "The charset must be utf-8, or left out.")
	}
	return nil
}
