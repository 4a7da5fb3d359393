package lockhttp

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// AdminConfig configures an [Admin]. Store and Authorize are required.
type AdminConfig struct {
	// Store keeps the leases. It must be a [locks.Lister] and a [locks.ForceReleaser]; without being a [locks.Queuer] it
	// cannot tell who waits, and without being a [locks.Sharer] not who shares.
	Store locks.Store
	// Authorize decides on every request. There is no way around it.
	Authorize Authorizer
	// Audit is told of every force release that went to the store, whatever came of it, before the answer is written. The
	// context is not the request's: it does not end when the client goes away, but after CallLimit. Where an outcome
	// becomes known only after the answer was given up, Audit is called a second time, on another goroutine, after the
	// first call has returned. A panic passes through, and is logged in the second call. Default: nobody is told.
	Audit func(ctx context.Context, release ForceRelease)
	// Challenge is the WWW-Authenticate header of a 401. Default: Bearer.
	Challenge string
	// CallLimit is how long one call to the store may take; then the answer is 503. Default: 5 s.
	CallLimit time.Duration
	// Logger gets the faults behind answers with 503. Default: nothing is logged.
	Logger *slog.Logger
}

// ForceRelease is what an [AdminConfig.Audit] is told.
type ForceRelease struct {
	// Resource, Token and Reason are what the operator asked for.
	Resource string
	Token    int64
	Reason   string
	// Released is the lease that was ended, where Err is nil.
	Released locks.Lock
	// Err is why nothing was released, or why it is not known.
	Err error
	// Request is the operator's request, to tell who it was. Its body has been read.
	Request *http.Request
}

// Admin answers the requests of operators: list, inspect, who waits, who shares, force release. It shows every field, sees the resources of the
// middleware too, and is safe for concurrent use.
type Admin struct {
	desk
	store  locks.Store
	lister locks.Lister
	forcer locks.ForceReleaser
	audit  func(ctx context.Context, release ForceRelease)
}

// NewAdmin returns an Admin. The error is [locks.ErrInvalid] and names the first field of the configuration that breaks a
// rule: without an authorizer, or on a store that cannot list and force, there are no admin routes.
func NewAdmin(config AdminConfig) (*Admin, error) {
	if config.Store == nil {
		return nil, optionError("Store", "is required")
	}
	if config.Authorize == nil {
		return nil, optionError("Authorize", "is required")
	}
	lister, ok := config.Store.(locks.Lister)
	if !ok {
		return nil, optionError("Store", "must be able to list (locks.Lister)")
	}
	forcer, ok := config.Store.(locks.ForceReleaser)
	if !ok {
		return nil, optionError("Store", "must be able to force a release (locks.ForceReleaser)")
	}
	if err := completeRest(&config.CallLimit, &config.Challenge, &config.Logger); err != nil {
		return nil, err
	}
	return &Admin{
		desk:   desk{authorize: config.Authorize, challenge: config.Challenge, limit: config.CallLimit, logger: config.Logger},
		store:  config.Store,
		lister: lister,
		forcer: forcer,
		audit:  config.Audit,
	}, nil
}

// admit asks before it judges: who may not look is not told either what a name has to be like.
func (a *Admin) admit(r *http.Request, action Action, resource string) error {
	fault := validateResource(resource)
	asked := resource
	if fault != nil {
		asked = ""
	}
	if err := a.permit(r, action, asked); err != nil {
		return err
	}
	return fault
}

// Inspect answers GET and HEAD /admin/locks/{resource}: 200 {"lock":{…}} with every field, or 404.
func (a *Admin) Inspect(w http.ResponseWriter, r *http.Request, resource string) {
	a.serve(w, r, ActionInspect, resource, func() error {
		if err := a.admit(r, ActionInspect, resource); err != nil {
			return err
		}
		if _, err := readQuery(r); err != nil {
			return err
		}
		lock, err := call.Do(r.Context(), a.limit, func(ctx context.Context) (locks.Lock, error) {
			return a.store.Get(ctx, resource)
		}, nil)
		if err != nil {
			return err
		}
		return a.deliver(w, r, one{complete(lock)})
	})
}

// Handler serves the admin routes below the prefix for hosts on net/http, as [API.Handler] does:
//
//	admin := api.Handler("/admin/locks")
//	mux.Handle("/admin/locks", admin)
//	mux.Handle("/admin/locks/", admin)
func (a *Admin) Handler(prefix string) http.Handler {
	list := func(w http.ResponseWriter, r *http.Request, _ string) { a.List(w, r) }
	return handler{
		{pattern: prefix, methods: map[string]resourceHandler{http.MethodGet: list, http.MethodHead: list}},
		{pattern: prefix + "/:resource", methods: map[string]resourceHandler{
			http.MethodGet: a.Inspect, http.MethodHead: a.Inspect, http.MethodDelete: a.ForceRelease,
		}},
		{pattern: prefix + "/:resource/waiters", methods: map[string]resourceHandler{
			http.MethodGet: a.Waiters, http.MethodHead: a.Waiters,
		}},
		{pattern: prefix + "/:resource/holders", methods: map[string]resourceHandler{
			http.MethodGet: a.Holders, http.MethodHead: a.Holders,
		}},
	}
}
