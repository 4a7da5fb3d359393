package lockhttp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Authorizer decides whether a request may do this with the resource: nil is yes. An error is 403, and 401 when it is
// [ErrUnauthenticated]; its text is not shown. The resource is the decoded one, so that no way of escaping it dodges a
// rule; for a list it is the prefix that is asked for, "" for all. The admin routes ask with "" also where the name is no
// valid one, and refuse the request afterwards. It must leave the request's body unread. A panic is the
// host's, and passes through.
type Authorizer func(r *http.Request, action Action, resource string) error

// ErrUnauthenticated is what an [Authorizer]'s error wraps when the request lacks credentials, or has wrong ones: the
// answer is 401 then, not 403.
var ErrUnauthenticated = errors.New("lockhttp: not authenticated")

// Config configures an [API]. Store and one of Authorize and Anyone are required; the rest has defaults.
type Config struct {
	// Store keeps the leases.
	Store locks.Store
	// Authorize decides on every request, before its body is read.
	Authorize Authorizer
	// Anyone says, in so many words, that whoever reaches the routes may acquire, renew, release and look at every
	// resource. It takes the place of Authorize.
	Anyone bool
	// Challenge is the WWW-Authenticate header of a 401. Default: Bearer.
	Challenge string
	// HeldStatus is the status of the answer "held by another owner": 200, 423 or 409. Default: 200, since it is an
	// answer and not an error. With the others the same members come in a [Problem].
	HeldStatus int
	// DefaultTTL is the lease's length where a request names none. Default: 30 s, or the nearest that MinTTL and MaxTTL
	// allow.
	DefaultTTL time.Duration
	// MinTTL is the shortest lease that a request may ask for, from 1 s. Default: 1 s.
	MinTTL time.Duration
	// MaxTTL is the longest lease that a request may ask for, up to 24 h. Default: 24 h.
	MaxTTL time.Duration
	// MaxWait is the longest that a request may wait while the resource is held; one that asks for more waits for so long.
	// Whole seconds, up to 24 h; negative, [NoWait], for none: what asks for a wait is then tried once. Each request that
	// waits keeps its connection. Default: 60 s.
	MaxWait time.Duration
	// MaxWaiters is how many may wait for one resource, in all processes, when a request comes that would wait too. A store
	// without a queue does not count. Default: 0, any number.
	MaxWaiters int
	// CallLimit is how long one call to the store may take; then the answer is 503. Default: 5 s.
	CallLimit time.Duration
	// ShowHolders shows owner, token and metadata of every lease to everybody who may ask for it. Default: only to
	// requests that name the owner. An owner's name is not a credential; whoever knows owner and token can release.
	ShowHolders bool
	// Logger gets the faults behind answers with 503, and leases that could not be given back. Default: nothing is logged.
	Logger *slog.Logger
}

// NoWait is the [Config.MaxWait] that lets no request wait.
const NoWait time.Duration = -1

const (
	defaultMaxWait   = time.Minute
	defaultTTL       = 30 * time.Second
	leastTTL         = time.Second
	defaultCallLimit = 5 * time.Second
	defaultChallenge = "Bearer"
)

// complete puts in the defaults and looks at the rest.
func (c *Config) complete() error {
	if c.Store == nil {
		return optionError("Store", "is required")
	}
	if c.Authorize == nil && !c.Anyone {
		return optionError("Authorize", "is required; Anyone opens the routes to whoever reaches them")
	}
	if c.Authorize != nil && c.Anyone {
		return optionError("Anyone", "contradicts Authorize")
	}
	switch c.HeldStatus {
	case 0:
		c.HeldStatus = http.StatusOK
	case http.StatusOK, http.StatusLocked, http.StatusConflict:
	default:
		return optionError("HeldStatus", fmt.Sprintf("must be 200, 423 or 409, got %d", c.HeldStatus))
	}
	if err := c.completeTTLs(); err != nil {
		return err
	}
	if err := c.completeWaits(); err != nil {
		return err
	}
	return completeRest(&c.CallLimit, &c.Challenge, &c.Logger)
}

func (c *Config) completeTTLs() error {
	if c.MinTTL == 0 {
		c.MinTTL = leastTTL
	}
	if c.MaxTTL == 0 {
		c.MaxTTL = locks.MaxTTL
	}
	for _, ttl := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"MinTTL", c.MinTTL, leastTTL, locks.MaxTTL},
		{"MaxTTL", c.MaxTTL, c.MinTTL, locks.MaxTTL},
	} {
		if ttl.value < ttl.least || ttl.value > ttl.most || ttl.value%time.Second != 0 {
			return optionError(ttl.name, fmt.Sprintf("must be whole seconds from %v to %v, got %v", ttl.least, ttl.most, ttl.value))
		}
	}
	if c.DefaultTTL == 0 {
		c.DefaultTTL = min(max(defaultTTL, c.MinTTL), c.MaxTTL)
	}
	if c.DefaultTTL < c.MinTTL || c.DefaultTTL > c.MaxTTL {
		return optionError("DefaultTTL", fmt.Sprintf("must be from %v to %v, got %v", c.MinTTL, c.MaxTTL, c.DefaultTTL))
	}
	return nil
}

func (c *Config) completeWaits() error {
	switch {
	case c.MaxWait == 0:
		c.MaxWait = defaultMaxWait
	case c.MaxWait < 0:
		c.MaxWait = 0
	case c.MaxWait > maxAskedWait || c.MaxWait%time.Second != 0:
		return optionError("MaxWait", fmt.Sprintf("must be whole seconds up to %v, or negative for no waits, got %v", maxAskedWait, c.MaxWait))
	}
	if c.MaxWaiters < 0 {
		return optionError("MaxWaiters", fmt.Sprintf("must not be negative, got %d", c.MaxWaiters))
	}
	return nil
}

// completeRest is what [Config] and [AdminConfig] have in common.
func completeRest(limit *time.Duration, challenge *string, logger **slog.Logger) error {
	if *limit == 0 {
		*limit = defaultCallLimit
	}
	if *limit < 0 {
		return optionError("CallLimit", fmt.Sprintf("must be positive, got %v", *limit))
	}
	if *challenge == "" {
		*challenge = defaultChallenge
	}
	if fault := faultOfText(*challenge); fault != "" {
		return optionError("Challenge", fault)
	}
	if *logger == nil {
		*logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func optionError(name, reason string) error {
	return fmt.Errorf("lockhttp: %w", &locks.InvalidError{Field: name, Reason: reason})
}
