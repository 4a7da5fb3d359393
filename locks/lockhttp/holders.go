package lockhttp

import (
	"context"
	"net/http"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// defaultHolders is how many shares are looked at where a request does not say.
const defaultHolders = 100

// Holders answers GET and HEAD /locks/{resource}/holders?owner=&limit=:
//
//	200 {"resource":"job:42","holders":[{…},…]}
//
// with the live shares of the resource in the order in which they were granted, the first limit ones, 1 to 1,000, 100 where it is
// not given. A share has the members that [API.Get] shows of a lock: id, owner, token and metadata only by
// [Config.ShowHolders], or where owner names its owner. An owner that is named keeps its share, if that is
// among the first 1,000. A resource that is
// free, or that one holds alone, has no shares, which is 200 too. A store that is no [locks.Sharer] is 501.
func (a *API) Holders(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionHolders, resource, func() error {
		if err := a.admit(r, ActionHolders, resource); err != nil {
			return err
		}
		return a.listHolders(w, r, a.store, resource, a.showHolders)
	})
}

// Holders answers GET and HEAD /admin/locks/{resource}/holders?owner=&limit=, as [API.Holders] does, with every field.
func (a *Admin) Holders(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionListHolders, resource, func() error {
		if err := a.admit(r, ActionListHolders, resource); err != nil {
			return err
		}
		return a.listHolders(w, r, a.store, resource, true)
	})
}

// listHolders is both routes: every field is shown to those who may see all.
func (d *desk) listHolders(w http.ResponseWriter, r *http.Request, store locks.Store, resource string, all bool) error {
	owner, named, limit, err := readWho(r, defaultHolders, locks.MaxListHolders)
	if err != nil {
		return err
	}
	if named { // it has one share, wherever that is
		limit = locks.MaxListHolders
	}
	sharer, ok := store.(locks.Sharer)
	if !ok {
		return refuse(noShares, "", "Every lease is held by one owner alone here.")
	}
	shares, err := call.Do(r.Context(), d.limit, func(ctx context.Context) ([]locks.Lock, error) {
		return sharer.Holders(ctx, resource, limit)
	}, nil)
	if err != nil {
		return err
	}
	body := struct {
		Resource string   `json:"resource"`
		Holders  []record `json:"holders"`
	}{Resource: resource, Holders: []record{}}
	for _, share := range shares {
		switch {
		case named && share.Owner != owner:
		case named || all:
			body.Holders = append(body.Holders, complete(share))
		default:
			body.Holders = append(body.Holders, redacted(share))
		}
	}
	return d.deliver(w, r, body)
}
