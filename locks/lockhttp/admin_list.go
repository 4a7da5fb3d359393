package lockhttp

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// List answers GET and HEAD /admin/locks?prefix=&owner=&limit=&cursor=:
//
//	200 {"locks":[{…},…],"next_cursor":"…"}
//
// with the live leases in byte order of their resources, every field shown. limit is 1 to 1,000, 100 where it is not
// given; next_cursor is null on the last page. A parameter that is given and empty is as if not given. A limit that is no integer is 400; one out of range, a broken cursor, and a prefix or owner that breaks the rules are 422.
func (a *Admin) List(w http.ResponseWriter, r *http.Request) {
	a.serve(w, r, ActionList, "", func() error { return a.list(w, r) })
}

func (a *Admin) list(w http.ResponseWriter, r *http.Request) error {
	// The authorizer is asked about the prefix, so the query is read first, but judged after: as in admit.
	query, fault := readQuery(r, "prefix", "owner", "limit", "cursor")
	if err := a.permit(r, ActionList, query.prefixToAsk()); err != nil {
		return err
	}
	if fault != nil {
		return fault
	}
	asked, err := listQueryOf(query)
	if err != nil {
		return err
	}
	page, err := call.Do(r.Context(), a.limit, func(ctx context.Context) (locks.Page, error) {
		return a.lister.List(ctx, asked)
	}, nil)
	if err != nil {
		return err
	}
	body := struct {
		Locks []record `json:"locks"`
		Next  *string  `json:"next_cursor"`
	}{Locks: make([]record, 0, len(page.Locks))}
	for _, lock := range page.Locks {
		body.Locks = append(body.Locks, complete(lock))
	}
	if n := len(page.Locks); page.More && n > 0 {
		next := cursorAfter(page.Locks[n-1].Resource)
		body.Next = &next
	}
	return a.deliver(w, r, body)
}

// prefixToAsk is the prefix for the authorizer. Where it is none, a list is refused afterwards, whatever the answer.
func (q query) prefixToAsk() string {
	prefix, _, err := q.one("prefix")
	if err != nil || locks.ValidateResource(prefix) != nil {
		return ""
	}
	return prefix
}

func listQueryOf(query query) (locks.ListQuery, error) {
	fail := func(err error) (locks.ListQuery, error) { return locks.ListQuery{}, err }
	var err error
	var asked locks.ListQuery
	var cursor string
	for _, text := range []struct {
		name string
		into *string
	}{{"prefix", &asked.Prefix}, {"owner", &asked.Owner}, {"cursor", &cursor}} {
		if *text.into, _, err = query.one(text.name); err != nil {
			return fail(err)
		}
	}
	if asked.Limit, err = limitFrom(query, 0, locks.MaxListLimit); err != nil {
		return fail(err)
	}
	if cursor != "" {
		after, ok := afterCursor(cursor)
		if !ok {
			return fail(&locks.InvalidError{Field: "cursor", Reason: "must be a next_cursor of an earlier page"})
		}
		asked.After = after
	}
	if err := asked.Validate(); err != nil {
		return fail(err)
	}
	return asked, nil
}

// limitFrom reads how many there may be in a list; a limit that is given and empty is as if not given.
func limitFrom(query query, otherwise, most int) (int, error) {
	text, _, err := query.one("limit")
	if err != nil || text == "" {
		return otherwise, err
	}
	if !isInteger(text) {
		return 0, refuse(malformed, "limit", "limit must be an integer.")
	}
	number, err := integerIn("limit", text, 1, int64(most))
	return int(number), err
}

// cursorMark is the cursor's version: what is inside may change, a cursor of another kind is refused.
const cursorMark = "1"

func cursorAfter(resource string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(cursorMark + resource))
}

func afterCursor(cursor string) (resource string, ok bool) {
	if strings.ContainsAny(cursor, "\r\n") { // the decoder would skip them
		return "", false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return "", false
	}
	resource, ok = strings.CutPrefix(string(text), cursorMark)
	return resource, ok && locks.ValidateResource(resource) == nil
}
