package lockhttp

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// API answers the four requests of a lease, acquire, get, renew and release, and who waits for it. It is safe for concurrent use. Its methods take
// the decoded resource, see [PathResource], and write the whole answer.
type API struct {
	desk
	store          locks.Store
	heldStatus     int
	ttl            time.Duration
	minTTL, maxTTL time.Duration
	maxWait        time.Duration
	maxWaiters     int
	showHolders    bool
	background     background
	givingBack     chan struct{}
}

// New returns an API. The error is [locks.ErrInvalid] and names the first field of the configuration that breaks a rule;
// without an authorizer, and without Anyone, there is no API.
func New(config Config) (*API, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	return &API{
		desk:        desk{authorize: config.Authorize, challenge: config.Challenge, limit: config.CallLimit, logger: config.Logger},
		store:       config.Store,
		heldStatus:  config.HeldStatus,
		ttl:         config.DefaultTTL,
		minTTL:      config.MinTTL,
		maxTTL:      config.MaxTTL,
		maxWait:     config.MaxWait,
		maxWaiters:  config.MaxWaiters,
		showHolders: config.ShowHolders,
		background:  background{most: giveBackPending, closing: make(chan struct{})},
		givingBack:  make(chan struct{}, giveBackCalls),
	}, nil
}

// Close refuses further acquires, and ends those that wait, with 503. Grants that are being given back in the background
// because their answer was lost are looked for once more, at once, and Close waits for that, and until the waits have given up
// their places, until ctx ends. It can be called again. Call it when the server begins to shut down, since its Shutdown waits
// for requests that wait, and once more after, for what the last requests have left. What was not found, or could not be
// freed, ends by time in the store.
func (a *API) Close(ctx context.Context) error { return a.background.close(ctx) }

// admit keeps the middleware's resources out of the REST API, for everybody and before anybody is asked.
func (a *API) admit(r *http.Request, action Action, resource string) error {
	if strings.HasPrefix(resource, RequestTag) {
		return refuse(reserved, "resource", "Resources that begin with "+RequestTag+" guard requests; only the admin routes see them.")
	}
	return a.desk.admit(r, action, resource)
}

// ttlFrom reads the lease's length, in seconds.
func (a *API) ttlFrom(body map[string]member) (time.Duration, error) {
	seconds, given := body["ttl_seconds"]
	if !given {
		return a.ttl, nil
	}
	number, err := integerIn("ttl_seconds", seconds.text, int64(a.minTTL/time.Second), int64(a.maxTTL/time.Second))
	return time.Duration(number) * time.Second, err
}

// Handler serves the API's routes below the prefix ("/locks", or "" where the host strips it) for hosts on net/http:
//
//	mux.Handle("/locks/", api.Handler("/locks"))
//
// The prefix may have parameters as [PathResource] knows them. A path that is no route is 404, another method 405.
func (a *API) Handler(prefix string) http.Handler {
	return handler{
		{pattern: prefix + "/:resource", methods: map[string]resourceHandler{
			http.MethodPost: a.Acquire, http.MethodGet: a.Get, http.MethodHead: a.Get, http.MethodDelete: a.Release,
		}},
		{pattern: prefix + "/:resource/renew", methods: map[string]resourceHandler{http.MethodPost: a.Renew}},
		{pattern: prefix + "/:resource/waiters", methods: map[string]resourceHandler{
			http.MethodGet: a.Waiters, http.MethodHead: a.Waiters,
		}},
		{pattern: prefix + "/:resource/holders", methods: map[string]resourceHandler{
			http.MethodGet: a.Holders, http.MethodHead: a.Holders,
		}},
	}
}
