package lockhttp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rowlease/rowlease/locks"
)

// RequestTag begins the resources that guard requests (see [RequestResource]). The REST API refuses every resource that
// begins with it, so that no REST call can free or block a request's lease; the admin routes see them and can force
// their release.
const RequestTag = "http:"

// hashTag begins, after [RequestTag], a name that was too long. No part's length can be read out of it.
const hashTag = "sha256:"

// RequestResource composes the resource that guards a request, usually from method, route and key, in the order that
// they are given: each part after its length in bytes, so that different parts never make the same name.
//
//	RequestResource("POST", "/payments", "a1") // http:4:POST,9:/payments,2:a1
//
// A name longer than [locks.MaxResourceBytes] is replaced by the SHA-256 of the whole, http:sha256:<hex>. A part may have
// any length but 0, and must be valid UTF-8 without control characters; the error is a [*locks.InvalidError] whose field
// is part 1, part 2, …
func RequestResource(parts ...string) (string, error) {
	if len(parts) == 0 {
		return "", &locks.InvalidError{Field: "parts", Reason: "must not be empty"}
	}
	var name strings.Builder
	name.WriteString(RequestTag)
	for i, part := range parts {
		if fault := faultOfText(part); fault != "" {
			return "", &locks.InvalidError{Field: fmt.Sprintf("part %d", i+1), Reason: fault}
		}
		if i > 0 {
			name.WriteByte(',')
		}
		name.WriteString(strconv.Itoa(len(part)))
		name.WriteByte(':')
		name.WriteString(part)
	}
	if name.Len() <= locks.MaxResourceBytes {
		return name.String(), nil
	}
	sum := sha256.Sum256([]byte(name.String()))
	return RequestTag + hashTag + hex.EncodeToString(sum[:]), nil
}

// faultOfText says which of the rules that hold for every name a text breaks, its length aside.
func faultOfText(text string) string {
	switch {
	case text == "":
		return "must not be empty"
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "must not have control characters"
	}
	return ""
}
