package lockhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/rowlease/rowlease/locks/internal/call"
)

var releaseShape = shape{"owner": aString, "token": anInteger}

// Release answers DELETE /locks/{resource}. Owner, which is required, and token stand in the query or in a JSON body, or
// in both if they agree. The answer is 204 without a body; 404 when the resource is not held, or its lease has ended; 403
// when another owner holds it, or a newer grant of the same owner; 409 while a transaction guards the lease.
//
// Without a token it ends any grant of that owner. That is unsafe for late finishers: a worker that slept past its
// lease would free the one that a colleague of the same name holds by now. Give the token that the acquire returned.
//
// A release that was begun is finished, also when the client goes away.
func (a *API) Release(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionRelease, resource, func() error { return a.release(w, r, resource) })
}

type none struct{}

func (a *API) release(w http.ResponseWriter, r *http.Request, resource string) error {
	if err := a.admit(r, ActionRelease, resource); err != nil {
		return err
	}
	query, err := readQuery(r, "owner", "token")
	if err != nil {
		return err
	}
	body, err := readBody(r, releaseShape, true)
	if err != nil && !errors.Is(err, errNoBody) {
		return err
	}
	grant, err := grantFrom(resource, query, body)
	if err != nil {
		return err
	}
	_, err = call.Do(detached(r), a.limit, func(ctx context.Context) (none, error) {
		return none{}, a.store.Release(ctx, grant)
	}, nil)
	if err != nil {
		return err
	}
	setCommon(w.Header(), "")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// detached is the request's context for what must be done though the client goes away.
func detached(r *http.Request) context.Context { return context.WithoutCancel(r.Context()) }
