package locks

import (
	"encoding/json"
	"time"
)

// Lock is the record of a lease as the store knew it when it answered.
type Lock struct {
	// ID names the row. It survives renewal, takeover and re-acquire; after a release or a purge the next grant has
	// a new one. It does not name the grant: Token does.
	ID int64
	// Resource is the name that is guarded.
	Resource string
	// Owner is who holds it: "" for a group of those who share it, see [Sharer].
	Owner string
	// Slots is how it is held: 0 alone, [Shared] by any number, else by at most so many.
	Slots int
	// Token is the fencing token: positive, below 2^53 (so that it is exact in JSON readers that use float64), larger
	// with every grant of the resource.
	Token int64
	// AcquiredAt and ExpiresAt are instants of the store's clock, in UTC. Do not compare them with the application's
	// clock: use Remaining.
	AcquiredAt, ExpiresAt time.Time
	// Remaining is the time that was left on the lease when the store answered, measured by the store's clock in the
	// statement that answered.
	Remaining time.Duration
	// Metadata is the JSON object that the acquire gave, or nil.
	Metadata json.RawMessage
}

// Grant names one grant of a resource: what renew, release and guard ask for.
type Grant struct {
	Resource string
	Owner    string
	// Token is the grant's fencing token, or [AnyToken].
	Token int64
}

// AnyToken in a [Grant] stands for whatever token the owner's current grant has. It is for callers that kept no
// token, such as clients of the REST API. It is unsafe for late finishers: a worker that slept past its lease would
// renew or release the newer grant that another worker of the same owner holds.
const AnyToken int64 = -1

// maxToken is the largest integer that every JSON reader keeps exactly.
const maxToken = 1<<53 - 1

// Grant returns the grant that the record is of.
func (l Lock) Grant() Grant {
	return Grant{Resource: l.Resource, Owner: l.Owner, Token: l.Token}
}

// Validate reports, as an [*InvalidError], the first field that breaks the rules for resources, owners and tokens.
func (g Grant) Validate() error {
	if err := ValidateResource(g.Resource); err != nil {
		return err
	}
	if err := ValidateOwner(g.Owner); err != nil {
		return err
	}
	if g.Token != AnyToken {
		return ValidateToken(g.Token)
	}
	return nil
}
