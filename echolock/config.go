package echolock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/locks"
)

// Config configures the middleware. Locker is required; the zero value of everything else is the default.
type Config struct {
	// Skipper defines a function to skip the middleware.
	// Optional. Default: nothing is skipped.
	Skipper func(c echo.Context) bool

	// BeforeFunc is called just before the middleware acts on a request, that is not for those that it skips.
	// Optional.
	BeforeFunc func(c echo.Context)

	// Locker acquires the leases. The middleware never closes it. After its Close, requests are answered 503.
	// Required.
	Locker *locks.Locker

	// KeyLookup is where the request's key is: "<source>:<name>", or several of them separated by commas.
	// Optional. Default: "header:Idempotency-Key".
	// Possible values:
	//   - "header:<name>"
	//   - "param:<name>", a path parameter, unescaped exactly once whatever way the client escaped it
	//   - "query:<name>"
	//   - "form:<name>", a field of a urlencoded or multipart body, not of the query; see BodyLimit
	//   - "cookie:<name>"
	// Of all sources together exactly one value must come, and it must not be empty: a repeated or empty one is 400.
	// A value is taken as it is, quotes, blanks and commas included; of a cookie's, net/http strips the quotes around it.
	KeyLookup string

	// KeyFunc finds the key instead of KeyLookup; "" is a missing key. Its error is the answer, as it is. If it needs the
	// body, it reads it with [PeekBody].
	// Optional.
	KeyFunc func(c echo.Context) (string, error)

	// KeyScope is what the key belongs to: equal keys of different scopes do not exclude each other. Its parts may have
	// any length but 0; the error is the answer, as it is. Add the tenant here, and the path parameters that the key depends
	// on, see [MethodAndRoute].
	// Optional. Default: [MethodAndRoute].
	KeyScope func(c echo.Context) ([]string, error)

	// MaxKeyBytes is the longest key, in bytes; a longer one is 400.
	// Optional. Default: 255.
	MaxKeyBytes int

	// MissingKey is what becomes of a request without a key.
	// Optional. Default: [MissingKeyRefused], 400.
	MissingKey MissingKeyPolicy

	// GuardSafeMethods guards GET, HEAD, OPTIONS and TRACE too. Without it they pass.
	// Optional. Default: false.
	GuardSafeMethods bool

	// Owner names who asks, for people who look at the leases: a process, a user. At most 200 bytes, valid UTF-8 without
	// control characters, "" for no name; the error is the answer, as it is. The lease's owner is this name, a slash and
	// random text, since an owner does not exclude itself: two requests of one owner would run together.
	// Optional. Default: random text only.
	Owner func(c echo.Context) (string, error)

	// TTL is how long the lease lasts unless it is renewed, which it is while the handler runs: so it is how long a killed
	// process keeps others out. From 100 ms to 24 h.
	// Optional. Default: the locker's.
	TTL time.Duration

	// WaitTimeout is how long a request waits while its key is held; then it is answered as held, up to a second later where
	// the store was just being asked. 0 is one try, without waiting. Those who wait are served in the order in which they
	// came, whatever process they are in, where the locker's store is a [locks.Queuer]; a request that does not wait is
	// answered as held while others do. The wait ends when the client goes, and its place is given up. So that the client's
	// going is noticed the request's body is read before, see BodyLimit. When the wait has ended with the lease the handler
	// runs, though perhaps the request before was the same one: see OnAcquired.
	// Optional. Default: 0.
	WaitTimeout time.Duration

	// MaxWaiters is how many may wait for a key, in all processes, when a request comes that would wait too; it is answered
	// at once then, as held, and the problem has "queue_full":true. A store without a queue does not count.
	// Optional. Default: 0, any number. Only with WaitTimeout.
	MaxWaiters int

	// Barging lets a request have a free key though others wait for it: more throughput and no order, see
	// [locks.WithBarging].
	// Optional. Default: false.
	Barging bool

	// MaxHold ends the handler's context, with the cause [locks.ErrMaxHold], and the renewal of the lease after so long.
	// The key is freed when the handler has returned, or when the TTL ends.
	// Optional. Default: 0, no limit; the locker's own, if it has one.
	MaxHold time.Duration

	// HeldStatus is the answer's status while the key is held: 423, 409 (which the Idempotency-Key draft wants), 429 or 503
	// (the two that clients heed Retry-After on).
	// Optional. Default: 423.
	HeldStatus int

	// FailOpen runs the handler without a lease when the store fails, so perhaps beside another; the echo logger is told.
	// It never does so for a key that is held, for a client that went away, or after the locker's Close.
	// Optional. Default: false, the answer is 503 with Retry-After.
	FailOpen bool

	// Tx begins a transaction for each request that is guarded: the lease is acquired and released in it, the handler has it
	// from [TxFrom], and it is committed when the handler succeeds, that is returns nil and has not answered with 400 or
	// above. Otherwise, and on a panic, it is rolled back. It is the store that the Locker is of, or another that stands for
	// the same table. While the transaction is open nobody else is granted the key, also past the end of the lease.
	//
	// The answer is kept in memory until the transaction has ended, see ResponseLimit, so that nobody is told of what was not
	// committed: Flush does nothing meanwhile, Hijack is refused, and an answer of less than 400 with an error is replaced by
	// echo's for the error. A transaction that could not be committed is 503 with Retry-After; [TypeOutcomeUnknown] says that
	// the database did not tell.
	//
	// The lease is not renewed meanwhile: the handler's context ends with the TTL, a margin before it, and what it does is
	// then rolled back. Let the TTL be longer than handlers take. A request has a connection of the pool until it is answered;
	// one that waits has one only for each try.
	// Optional. Default: no transaction. Cannot be combined with FailOpen.
	Tx locks.Transactor

	// ResponseLimit is the most bytes of an answer's body that are kept in memory under Tx. For a larger one the
	// transaction is rolled back, and the answer is 500 with [TypeResponseTooLarge].
	// Optional. Default: 1 MiB.
	ResponseLimit int64

	// BodyLimit is the most bytes of a body that are read into memory: for a form lookup, and before a wait. A larger body
	// is 413 then. The handler can read the body, or parse its form, all the same.
	// Optional. Default: 1 MiB.
	BodyLimit int64

	// ContextKey is where echo's context has the lease, a *locks.Lease. [LeaseFrom] does not need it.
	// Optional. Default: "lease".
	ContextKey string

	// ExposeHeaders answers with [HeaderKey] and [HeaderWaited], and with [HeaderToken] where there is a lease.
	// Optional. Default: false.
	ExposeHeaders bool

	// OnAcquired is called under the lease before the handler. If it answers (the response is committed) or returns an
	// error, which is the answer then, the handler is not run: so that a request that waited can be given what the one
	// before it has done.
	// Optional.
	OnAcquired func(c echo.Context, lease *locks.Lease) error

	// OnLost is called once for a lease that was lost before it was freed, with an error that is [locks.ErrLost], in a
	// goroutine of its own: while the handler runs, or after it where only the release found out. It gets no
	// [echo.Context], which is not to be used outside the handler's goroutine; the request's values are in
	// lease.Context(). A panic of OnLost is logged.
	// Optional.
	OnLost func(lease *locks.Lease, err error)

	// DenyHandler answers a request whose key is held, or for which as many wait as may, instead of the problem with HeldStatus.
	// What it returns is returned to echo, nil included. [ProblemError] makes the answer that it replaces. It is not called
	// for a request whose context has ended: under echo's Timeout the [echo.Context] may be another request's by then.
	// Optional.
	DenyHandler func(c echo.Context, held *locks.HeldError) error

	// ErrorHandler answers what else the middleware refuses: key, body, store, a lost lease. It is given the error that
	// would be returned, an [*echo.HTTPError] unless a function of this Config made it; what it returns is returned to
	// echo, nil included. It never gets the handler's own errors, nor, as DenyHandler, a request whose context has ended.
	// Content-Type and Retry-After are set on the response when it has returned a problem; an Echo.HTTPErrorHandler that
	// writes a body of its own sets the Content-Type itself, since echo's c.JSON keeps one that is there:
	//
	//	c.Response().Header().Del(echo.HeaderContentType)
	//	err = c.JSON(status, body)
	//
	// Optional.
	ErrorHandler func(c echo.Context, err error) error
}

// MissingKeyPolicy is what becomes of a request without a key.
type MissingKeyPolicy int

const (
	// MissingKeyRefused answers 400. It is the default: a client that forgets the key is not left unguarded unnoticed.
	MissingKeyRefused MissingKeyPolicy = iota
	// MissingKeyPasses runs the handler without a lease. An empty key is 400 all the same.
	MissingKeyPasses
)

// Defaults of [Config].
const (
	DefaultKeyLookup           = "header:Idempotency-Key"
	DefaultMaxKeyBytes         = 255
	DefaultBodyLimit     int64 = 1 << 20
	DefaultResponseLimit int64 = 1 << 20
	DefaultContextKey          = "lease"
)

// maxOwnerBytes leaves room for the random text.
const maxOwnerBytes = 200

// DefaultConfig is the defaults as a Config, to start from. It lacks the Locker.
var DefaultConfig = Config{
	KeyLookup:     DefaultKeyLookup,
	KeyScope:      MethodAndRoute,
	MaxKeyBytes:   DefaultMaxKeyBytes,
	HeldStatus:    http.StatusLocked,
	ResponseLimit: DefaultResponseLimit,
	BodyLimit:     DefaultBodyLimit,
	ContextKey:    DefaultContextKey,
}

// complete puts in the defaults and looks at the rest.
func (config *Config) complete() error {
	if config.Locker == nil {
		return setupError("Locker", "is required")
	}
	if config.KeyFunc != nil && config.KeyLookup != "" && config.KeyLookup != DefaultKeyLookup {
		return setupError("KeyFunc", "contradicts KeyLookup")
	}
	if config.KeyFunc == nil && config.KeyLookup == "" {
		config.KeyLookup = DefaultKeyLookup
	}
	if config.KeyScope == nil {
		config.KeyScope = MethodAndRoute
	}
	if config.ContextKey == "" {
		config.ContextKey = DefaultContextKey
	}
	if config.MaxKeyBytes == 0 {
		config.MaxKeyBytes = DefaultMaxKeyBytes
	}
	if config.BodyLimit == 0 {
		config.BodyLimit = DefaultBodyLimit
	}
	if config.ResponseLimit == 0 {
		config.ResponseLimit = DefaultResponseLimit
	}
	if config.HeldStatus == 0 {
		config.HeldStatus = http.StatusLocked
	}
	return config.check()
}

func (config *Config) check() error {
	for _, number := range []struct {
		name  string
		value int64
	}{
		{"MaxKeyBytes", int64(config.MaxKeyBytes)},
		{"TTL", int64(config.TTL)},
		{"WaitTimeout", int64(config.WaitTimeout)},
		{"MaxWaiters", int64(config.MaxWaiters)},
		{"MaxHold", int64(config.MaxHold)},
		{"ResponseLimit", config.ResponseLimit},
		{"BodyLimit", config.BodyLimit},
	} {
		if number.value < 0 {
			return setupError(number.name, "must not be negative")
		}
	}
	if config.MaxWaiters > 0 && config.WaitTimeout == 0 {
		return setupError("MaxWaiters", "needs a WaitTimeout")
	}
	switch config.HeldStatus {
	case http.StatusLocked, http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return setupError("HeldStatus", fmt.Sprintf("must be 423, 409, 429 or 503, got %d", config.HeldStatus))
	}
	switch config.MissingKey {
	case MissingKeyRefused, MissingKeyPasses:
	default:
		return setupError("MissingKey", fmt.Sprintf("must be MissingKeyRefused or MissingKeyPasses, got %d", config.MissingKey))
	}
	if err := config.checkTx(); err != nil {
		return err
	}
	return config.checkLease()
}

// checkLease lets the locker look at how TTL and MaxHold fit its own options. Under a context that has ended an acquire
// goes no further than that; the store is not asked.
func (config *Config) checkLease() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := config.Locker.TryAcquire(ctx, "set-up", config.leaseOptions(nil)...)
	if errors.Is(err, locks.ErrInvalid) {
		return fmt.Errorf("echolock: %w", err)
	}
	return nil
}

// leaseOptions appends what is the same for every request.
func (config *Config) leaseOptions(options []locks.AcquireOption) []locks.AcquireOption {
	if config.TTL > 0 {
		options = append(options, locks.WithTTL(config.TTL))
	}
	if config.MaxHold > 0 {
		options = append(options, locks.WithMaxHold(config.MaxHold))
	}
	if config.MaxWaiters > 0 {
		options = append(options, locks.WithMaxWaiters(config.MaxWaiters))
	}
	if config.Barging {
		options = append(options, locks.WithBarging())
	}
	return options
}

func setupError(field, reason string) error {
	return fmt.Errorf("echolock: %w", &locks.InvalidError{Field: field, Reason: reason})
}
