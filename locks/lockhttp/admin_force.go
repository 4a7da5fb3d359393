package lockhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxReasonBytes is the longest reason of a force release.
const maxReasonBytes = 500

var forceShape = shape{"reason": aString}

// ForceRelease answers DELETE /admin/locks/{resource}: it ends the grant whose token the operator saw, and no other. The
// token is the header If-Match: "7" or ?token=7. The reason is ?reason= or the body {"reason":"…"}, 1 to 500 bytes of UTF-8
// without control characters; it goes to [AdminConfig.Audit].
//
// The answer is 200 {"lock":{…}}, what was released; 428 without a token (also for If-Match: *, which names none); 412
// when another grant holds the resource, and for an If-Match that can match none (a weak one, one that is no token); 404
// when nothing is held; 409 while a transaction guards the lease. 400 is an If-Match that is no entity-tag, or a list, or
// that differs from ?token=; 422 a reason that breaks the rules.
//
// The holder is told at its next renewal. Until then only a guard or a check of the token keeps it from writing.
func (a *Admin) ForceRelease(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionForceRelease, resource, func() error { return a.forceRelease(w, r, resource) })
}

func (a *Admin) forceRelease(w http.ResponseWriter, r *http.Request, resource string) error {
	if err := a.admit(r, ActionForceRelease, resource); err != nil {
		return err
	}
	token, reason, err := readForce(r)
	if err != nil {
		return err
	}
	tell := func(released locks.Lock, err error) {
		if a.audit == nil {
			return
		}
		ctx, cancel := context.WithTimeout(detached(r), a.limit)
		defer cancel()
		a.audit(ctx, ForceRelease{Resource: resource, Token: token, Reason: reason, Released: released, Err: err, Request: r})
	}
	told := make(chan struct{})
	released, err := call.Do(detached(r), a.limit, func(ctx context.Context) (locks.Lock, error) {
		return a.forcer.ForceRelease(ctx, resource, token)
	}, func(released locks.Lock, err error) {
		<-told // first that it is not known, then what it was
		defer a.logPanic(r, resource)
		tell(released, err)
	})
	func() {
		defer close(told)
		tell(released, err)
	}()
	if err != nil {
		return err
	}
	return a.deliver(w, r, one{complete(released)})
}

// logPanic is deferred where nobody else could recover: a panic of the host's audit must not end the process.
func (a *Admin) logPanic(r *http.Request, resource string) {
	if p := recover(); p != nil {
		a.logger.ErrorContext(detached(r), "lockhttp: the audit of a force release panicked",
			"resource", resource, "panic", p, "stack", string(debug.Stack()))
	}
}

// readForce reads token and reason. What is malformed comes first, then what must be there, then what cannot match.
func readForce(r *http.Request) (token int64, reason string, err error) {
	query, err := readQuery(r, "token", "reason")
	if err != nil {
		return 0, "", err
	}
	body, err := readBody(r, forceShape, true)
	if err != nil && !errors.Is(err, errNoBody) {
		return 0, "", err
	}
	reason, _, err = query.merged("reason", body)
	if err != nil {
		return 0, "", err
	}
	token, err = seenToken(r.Header, query)
	if err != nil && refusalOf(err).reason != tokenMismatch {
		return 0, "", err
	}
	if fault := faultOfText(reason); fault != "" {
		return 0, "", &locks.InvalidError{Field: "reason", Reason: fault}
	}
	if len(reason) > maxReasonBytes {
		return 0, "", &locks.InvalidError{Field: "reason", Reason: fmt.Sprintf("must be at most %d bytes", maxReasonBytes)}
	}
	return token, reason, err
}

// seenToken returns the token that the operator saw.
func seenToken(header http.Header, query query) (int64, error) {
	inQuery, given, err := query.one("token")
	if err != nil {
		return 0, err
	}
	var token int64
	if given {
		if token, err = tokenFrom(inQuery); err != nil {
			return 0, err
		}
	}
	tag, matched, err := ifMatch(header)
	switch {
	case err != nil:
		return 0, err
	case !matched && !given:
		return 0, refuse(tokenRequired, "token", "Name the token that you saw, as If-Match: \"<token>\" or ?token=.")
	case !matched:
		return token, nil
	case given && tag != strconv.FormatInt(token, 10):
		return 0, differs("token")
	case !isInteger(tag):
		return 0, noSuchToken()
	}
	if token, err = tokenFrom(tag); err != nil {
		return 0, noSuchToken()
	}
	return token, nil
}

func noSuchToken() error {
	return refuse(tokenMismatch, "If-Match", "This entity-tag can match no token.")
}

// ifMatch returns what stands between the quotes of the one strong entity-tag. A star names no grant, so it counts as
// nothing said.
func ifMatch(header http.Header) (tag string, given bool, err error) {
	lines := header.Values("If-Match")
	if len(lines) == 0 {
		return "", false, nil
	}
	value := strings.Trim(strings.Join(lines, ","), " \t")
	if value == "*" {
		return "", false, nil
	}
	strong := strings.TrimPrefix(value, "W/")
	if len(strong) < 2 || strong[0] != '"' || strong[len(strong)-1] != '"' || strings.Contains(strong[1:len(strong)-1], `"`) {
		return "", false, refuse(malformed, "If-Match", "If-Match must be one entity-tag: a token in double quotes.")
	}
	if strong != value {
		return "", false, noSuchToken()
	}
	return strong[1 : len(strong)-1], true, nil
}
