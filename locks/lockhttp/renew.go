package lockhttp

import (
	"context"
	"net/http"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

var renewShape = shape{"owner": aString, "ttl_seconds": anInteger, "token": anInteger}

// Renew answers POST /locks/{resource}/renew. The body is {"owner":"w1","ttl_seconds":30,"token":7}; owner and
// ttl_seconds are required, and the token is wise: without it any grant of that owner is renewed, also the one of a colleague that came after a
// worker which slept past its lease. The answer is 200 {"lock":{…}} with the new end, now + ttl_seconds, and the same
// token and acquired_at; or 409, with a type of its own for another owner, an ended lease, a newer grant of the same
// owner, and a resource that is not held. Repeating it does no harm.
func (a *API) Renew(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionRenew, resource, func() error { return a.renew(w, r, resource) })
}

func (a *API) renew(w http.ResponseWriter, r *http.Request, resource string) error {
	if err := a.admit(r, ActionRenew, resource); err != nil {
		return err
	}
	query, err := readQuery(r, "owner", "token")
	if err != nil {
		return err
	}
	body, err := readBody(r, renewShape, false)
	if err != nil {
		return err
	}
	grant, err := grantFrom(resource, query, body)
	if err != nil {
		return err
	}
	if _, given := body["ttl_seconds"]; !given {
		return &locks.InvalidError{Field: "ttl_seconds", Reason: "is required"}
	}
	ttl, err := a.ttlFrom(body)
	if err != nil {
		return err
	}
	lock, err := call.Do(r.Context(), a.limit, func(ctx context.Context) (locks.Lock, error) {
		return a.store.Renew(ctx, grant, ttl)
	}, nil)
	if err != nil {
		return err
	}
	return a.deliver(w, r, one{complete(lock)})
}

// grantFrom reads owner and token, which may stand in the body or in the query. No token is any token.
func grantFrom(resource string, query query, body map[string]member) (locks.Grant, error) {
	owner, named, err := query.merged("owner", body)
	if err != nil {
		return locks.Grant{}, err
	}
	token, given, err := query.merged("token", body)
	if err != nil {
		return locks.Grant{}, err
	}
	grant := locks.Grant{Resource: resource, Token: locks.AnyToken}
	if given {
		if grant.Token, err = tokenFrom(token); err != nil {
			return locks.Grant{}, err
		}
	}
	if grant.Owner, err = ownerFrom(owner, named); err != nil {
		return locks.Grant{}, err
	}
	return grant, nil
}
