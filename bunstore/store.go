package bunstore

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/rowlease/rowlease/bunstore/internal/dberror"
	"github.com/rowlease/rowlease/bunstore/internal/transaction"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

// Store keeps leases in a table of the host's database, through its bun.DB. It is safe for concurrent use, holds no
// connection between calls, and closes nothing.
type Store struct {
	db     *bun.DB
	config config
	engine engine
	front  *waitqueue.Front
}

// engine is the statements of one dialect. What it is given is valid, its context has a deadline. It returns the
// errors of [locks.Store], and faults as the driver worded them.
type engine interface {
	queueEngine
	shareEngine
	acquire(ctx context.Context, request locks.Request) (locks.Lock, error)
	// acquireAll is given the requests in byte order of their resources, and returns the locks in that order.
	acquireAll(ctx context.Context, requests []locks.Request) ([]locks.Lock, error)
	renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error)
	release(ctx context.Context, grant locks.Grant) error
	releaseAttempt(ctx context.Context, resource, owner, attempt string) error
	get(ctx context.Context, resource string) (locks.Lock, error)
	list(ctx context.Context, query locks.ListQuery) (locks.Page, error)
	purge(ctx context.Context, limit int) (int, error)
	forceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error)
	// tx is the engine on a caller's transaction; conn tells that it is a connection, on which one may be open.
	tx(q transaction.Querier, conn bool) txEngine
}

var (
	_ locks.Store         = (*Store)(nil)
	_ locks.Lister        = (*Store)(nil)
	_ locks.Purger        = (*Store)(nil)
	_ locks.ForceReleaser = (*Store)(nil)
	_ locks.MultiAcquirer = (*Store)(nil)
)

// New returns a store on the database. It asks the database nothing: call [Store.Check] once at start to find a missing
// table or an unfit database before the first acquire does.
//
// Errors: [locks.ErrInvalid] for the first bad option, for a nil db, and for a dialect other than PostgreSQL's and
// SQLite's.
func New(db *bun.DB, options ...Option) (*Store, error) {
	c := config{table: table{name: DefaultTable}, callLimit: DefaultCallLimit, busyLimit: DefaultBusyLimit, guardLimit: DefaultGuardLimit}
	for _, option := range options {
		if option == nil {
			return nil, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option.applyStore(&c); err != nil {
			return nil, err
		}
	}
	if err := c.table.validDB(db); err != nil {
		return nil, err
	}
	s := &Store{db: db, config: c}
	if db.Dialect().Name() != dialect.PG && c.queue.Waker != nil {
		return nil, &locks.InvalidError{Field: "waker", Reason: "needs PostgreSQL"}
	}
	c.queue.Backend, c.queue.CallLimit = backend{s}, c.callLimit
	front, err := waitqueue.NewFront(c.queue)
	if err != nil {
		return nil, err
	}
	s.front = front
	run := runner{
		db: db, hooks: c.hooks, guardLimit: c.guardLimit, callLimit: c.callLimit, channel: front.Channel(), wake: front.Wake,
	}
	if db.Dialect().Name() == dialect.PG {
		s.engine = newPostgres(run, c.table)
	} else {
		s.engine = newSQLite(run, c.table, c.busyLimit, s.beginImmediate)
	}
	return s, nil
}

// Acquire implements [locks.Store].
func (s *Store) Acquire(ctx context.Context, request locks.Request) (locks.Lock, error) {
	if err := request.Validate(); err != nil {
		return locks.Lock{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	acquire := s.engine.acquire
	if request.Slots != 0 {
		acquire = s.engine.acquireShare
	}
	lock, err := acquire(ctx, request)
	return lock, s.fault(ctx, "acquire", err)
}

// Renew implements [locks.Store].
func (s *Store) Renew(ctx context.Context, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	if err := grant.Validate(); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateTTL(ttl); err != nil {
		return locks.Lock{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	lock, err := s.engine.renew(ctx, grant, ttl)
	return lock, s.fault(ctx, "renew", err)
}

// Release implements [locks.Store]. On PostgreSQL it does not wait for the disk: a crash of the server right after it
// can bring the row back, which then ends by its TTL.
func (s *Store) Release(ctx context.Context, grant locks.Grant) error {
	if err := grant.Validate(); err != nil {
		return err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.fault(ctx, "release", s.engine.release(ctx, grant))
}

// ReleaseAttempt implements [locks.Store].
func (s *Store) ReleaseAttempt(ctx context.Context, resource, owner, attempt string) error {
	if err := locks.ValidateAttempt(resource, owner, attempt); err != nil {
		return err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.fault(ctx, "release", s.engine.releaseAttempt(ctx, resource, owner, attempt))
}

// Get implements [locks.Store]. It reads from the database that the leases are changed in, never from a replica that a
// [bun.ConnResolver] would choose.
func (s *Store) Get(ctx context.Context, resource string) (locks.Lock, error) {
	if err := locks.ValidateResource(resource); err != nil {
		return locks.Lock{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	lock, err := s.engine.get(ctx, resource)
	return lock, s.fault(ctx, "get", err)
}

// List implements [locks.Lister]. Like [Store.Get] it never reads from a replica.
func (s *Store) List(ctx context.Context, query locks.ListQuery) (locks.Page, error) {
	if err := query.Validate(); err != nil {
		return locks.Page{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	page, err := s.engine.list(ctx, query)
	return page, s.fault(ctx, "list", err)
}

// Purge implements [locks.Purger].
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	if limit < 1 {
		return 0, &locks.InvalidError{Field: "limit", Reason: fmt.Sprintf("must be positive, got %d", limit)}
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	n, err := s.engine.purge(ctx, limit)
	return n, s.fault(ctx, "purge", err)
}

// ForceRelease implements [locks.ForceReleaser].
func (s *Store) ForceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error) {
	if err := locks.ValidateResource(resource); err != nil {
		return locks.Lock{}, err
	}
	if err := locks.ValidateToken(token); err != nil {
		return locks.Lock{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	lock, err := s.engine.forceRelease(ctx, resource, token)
	return lock, s.fault(ctx, "force release", err)
}

// Check looks whether the database can hold leases as promised, and returns what it found and, as a [*CheckError],
// all that must be put right: run it once at start. It changes nothing.
func (s *Store) Check(ctx context.Context) (Report, error) {
	return check(ctx, s.db, s.config.table)
}

// bound gives a call its deadline.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < s.config.callLimit {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.config.callLimit)
}

// fault words what is not one of the answers of [locks.Store]: a context's end is recognisable whatever the driver
// called it, and so is a fault that is worth a new try.
func (s *Store) fault(ctx context.Context, verb string, err error) error {
	if err == nil || dberror.IsAnswer(err) {
		return err
	}
	return dberror.Wrap(ctx, "bunstore: "+verb, err)
}

// maxAsks bounds how often a statement is asked again because a row changed while it ran. Each time somebody else
// succeeded, so that the bound is met only by a database that does not do as it says.
const maxAsks = 5

func unsettled(resource string) error {
	return fmt.Errorf("the row of %q changed %d times meanwhile", resource, maxAsks)
}

// anotherGrant is the answer to a force release whose token was seen before the present grant. Whose it was is not known.
func anotherGrant(resource string, token int64) error {
	return &locks.LostError{Grant: locks.Grant{Resource: resource, Token: token}, Reason: locks.ErrSuperseded}
}
