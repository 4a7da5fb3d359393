package lockhttp

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rowlease/rowlease/locks"
)

// query is the part of a request's query that is ours. Other parameters belong to the host.
type query struct{ values url.Values }

// queryNames are ours on every route, also where they have no meaning: a ttl_seconds that stands in the query by mistake
// must not be passed over in silence.
var queryNames = []string{"owner", "token", "ttl_seconds", "metadata", "shared", "slots", "wait", "reason", "prefix", "limit", "cursor"}

// readQuery parses the query, of which the route knows these names, and refuses others of ours and wrong cases. What could
// be read is returned with the error, for an authorizer.
func readQuery(r *http.Request, names ...string) (query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return query{values}, refuse(malformed, "query",
			"The query is not percent-encoded: % begins an escape of two hex digits (and is %25 itself), and ; is %3B.")
	}
	for name := range values {
		for _, right := range queryNames {
			switch {
			case !strings.EqualFold(name, right):
			case !slices.Contains(names, right):
				return query{values}, refuse(malformed, right, right+" does not belong into the query of this request.")
			case name != right:
				return query{values}, refuse(malformed, right, "Names are case-sensitive: write "+right+".")
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
	number, _ := strconv.ParseInt(text, 10, 64) // what is too long becomes the nearest, which is no token either
	return number, locks.ValidateToken(number)
}

// namedOwner returns the owner that a look names, if it names one.
func (q query) namedOwner() (owner string, named bool, err error) {
	owner, named, err = q.one("owner")
	if err == nil && named {
		err = locks.ValidateOwner(owner)
	}
	return owner, named, err
}

// ownerFrom looks at an owner that the request must name.
func ownerFrom(owner string, given bool) (string, error) {
	if !given {
		return "", &locks.InvalidError{Field: "owner", Reason: "is required"}
	}
	return owner, locks.ValidateOwner(owner)
}

// readWho reads ?owner=&limit= of a route that tells who they are: named where an owner is given.
func readWho(r *http.Request, otherwise, most int) (owner string, named bool, limit int, err error) {
	query, err := readQuery(r, "owner", "limit")
	if err != nil {
		return "", false, 0, err
	}
	if owner, named, err = query.namedOwner(); err != nil {
		return "", false, 0, err
	}
	limit, err = limitFrom(query, otherwise, most)
	return owner, named, limit, err
}
