package lockhttp

import (
	"context"
	"net/http"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// Get answers GET and HEAD /locks/{resource}: 200 {"lock":{…}}, or 404 when the resource is free or its lease has ended.
// The lock has id, owner, token and metadata only when ?owner= names the holder, or by [Config.ShowHolders]; else these
// four members are not there. Where it is shared the lock is the group's, which has no owner: nobody is named by it, and
// [API.Holders] tells of the shares. A resource may be refused to an acquire though Get says 404: a transaction is just acquiring it.
func (a *API) Get(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionGet, resource, func() error { return a.get(w, r, resource) })
}

func (a *API) get(w http.ResponseWriter, r *http.Request, resource string) error {
	if err := a.admit(r, ActionGet, resource); err != nil {
		return err
	}
	query, err := readQuery(r, "owner")
	if err != nil {
		return err
	}
	owner, named, err := query.namedOwner()
	if err != nil {
		return err
	}
	lock, err := call.Do(r.Context(), a.limit, func(ctx context.Context) (locks.Lock, error) {
		return a.store.Get(ctx, resource)
	}, nil)
	if err != nil {
		return err
	}
	shown := redacted(lock)
	if a.showHolders || named && owner == lock.Owner {
		shown = complete(lock)
	}
	return a.deliver(w, r, one{shown})
}
