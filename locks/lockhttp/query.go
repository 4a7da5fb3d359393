package lockhttp

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rowlease/rowlease/locks"
)

// query is the part of a request's query that is ours. Other parameters belong to the host.
type query struct{ values url.Values }

// readQuery parses the query and looks for names that differ from ours in case only.
func readQuery(r *http.Request, names ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{}, refuse(malformed, "query", "The query is not escaped as it must be.")
	}
	for name := range values {
		for _, right := range names {
			if name != right && strings.EqualFold(name, right) {
				return query{}, refuse(malformed, right, "Names are case-sensitive: write "+right+".")
			}
		}
	}
	return query{values}, nil
}

// one returns the parameter and whether it is given. Given twice it must say the same.
func (q query) one(name string) (value string, given bool, err error) {
	all := q.values[name]
	if len(all) == 0 {
		return "", false, nil
	}
	if slices.ContainsFunc(all, func(other string) bool { return other != all[0] }) {
		return "", false, differs(name)
	}
	return all[0], true, nil
}

// merged returns the one value of a name that may stand in the body, in the query, or in both with the same value.
func (q query) merged(name string, body map[string]member) (value string, given bool, err error) {
	value, given, err = q.one(name)
	if err != nil {
		return "", false, err
	}
	if inBody, ok := body[name]; ok {
		if given && inBody.text != value {
			return "", false, differs(name)
		}
		return inBody.text, true, nil
	}
	return value, given, nil
}

func differs(name string) error {
	return refuse(malformed, name, name+" is given more than once, and differently.")
}

// tokenFrom reads a token out of a query. There is no number for "any": that is saying nothing.
func tokenFrom(text string) (int64, error) {
	if !isInteger(text) {
		return 0, refuse(malformed, "token", "token must be an integer.")
	}
	return integerIn("token", text, 1, maxToken)
}

// maxToken is the largest fencing token, see [locks.ValidateToken].
const maxToken = 1<<53 - 1

// ownerFrom looks at an owner that the request must name.
func ownerFrom(owner string, given bool) (string, error) {
	if !given {
		return "", &locks.InvalidError{Field: "owner", Reason: "is required"}
	}
	return owner, locks.ValidateOwner(owner)
}
