package lockhttp

import (
	"context"
	"net/http"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// defaultWaiters is how many of the first waiters are looked at where a request does not say.
const defaultWaiters = 100

// Waiters answers GET and HEAD /locks/{resource}/waiters?owner=&limit=:
//
//	200 {"resource":"job:42","waiting":3,"waiters":[{"place":2,"owner":"w2","since":…,"expires_at":…}]}
//
// waiting is how many wait, in all processes. waiters are those of the owner that the request names, if they are among the
// first limit ones, 1 to 1,000, 100 where it is not given; by [Config.ShowHolders] all of these, where no owner is named; and none
// else. Place 1 is the first to be served, since is when it came, and expires_at when its place ends unless its process keeps it.
// It is a look at one instant. Nobody waits for a free resource for long; one that nobody waits for is 200 too. A store that
// is no [locks.Queuer] is 501.
func (a *API) Waiters(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionWaiters, resource, func() error {
		if err := a.admit(r, ActionWaiters, resource); err != nil {
			return err
		}
		return a.listWaiters(w, r, a.store, resource, a.showHolders)
	})
}

// Waiters answers GET and HEAD /admin/locks/{resource}/waiters?owner=&limit=, as [API.Waiters] does, with the first limit ones
// whoever they are; owner keeps those of one owner. It tells of the middleware's resources too.
func (a *Admin) Waiters(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionListWaiters, resource, func() error {
		if err := a.admit(r, ActionListWaiters, resource); err != nil {
			return err
		}
		return a.listWaiters(w, r, a.store, resource, true)
	})
}

// waiter is one who waits, in an answer.
type waiter struct {
	Place     int    `json:"place"`
	Owner     string `json:"owner"`
	Since     string `json:"since"`
	ExpiresAt string `json:"expires_at"`
}

// listWaiters is both routes: strangers are shown to those who may see all.
func (d *desk) listWaiters(w http.ResponseWriter, r *http.Request, store locks.Store, resource string, all bool) error {
	owner, named, limit, err := readWho(r, defaultWaiters, locks.MaxListWaiters)
	if err != nil {
		return err
	}
	queuer, ok := store.(locks.Queuer)
	if !ok {
		return refuse(noQueue, "", "Those who wait try again and again here: nobody knows how many they are.")
	}
	if !named && !all {
		limit = 0
	}
	queue, err := call.Do(r.Context(), d.limit, func(ctx context.Context) (locks.Queue, error) {
		return queuer.Waiters(ctx, resource, limit)
	}, nil)
	if err != nil {
		return err
	}
	body := struct {
		Resource string   `json:"resource"`
		Waiting  int      `json:"waiting"`
		Waiters  []waiter `json:"waiters"`
	}{Resource: resource, Waiting: queue.Waiting, Waiters: []waiter{}}
	for i, one := range queue.Waiters {
		if !named || one.Owner == owner {
			body.Waiters = append(body.Waiters, waiter{i + 1, one.Owner, instant(one.Since), instant(one.ExpiresAt)})
		}
	}
	return d.deliver(w, r, body)
}
