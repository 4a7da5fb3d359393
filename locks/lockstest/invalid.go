package lockstest

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func invalidPromises() []promise {
	return []promise{
		{name: "TTLs out of rule are refused", test: invalidTTLs},
		{name: "metadata out of rule is refused", test: invalidMetadata},
		{name: "tokens out of rule are refused", test: invalidTokens},
		{name: "limits out of rule are refused", test: invalidLimits},
		{name: "the limits themselves are accepted", test: invalidLimitsAccepted},
	}
}

// arguments are a call's arguments by their names; what is not given is right.
type arguments map[string]any

func argument[T any](args arguments, field string, right T) T {
	if value, given := args[field]; given {
		return value.(T)
	}
	return right
}

// call is one method of a store with its arguments by name.
type call struct {
	name string
	// names are the arguments that are names: resource, owner, attempt.
	names []string
	// do reports able = false where the store does not have the ability.
	do func(c *check, store locks.Store, args arguments) (able bool, err error)
}

func (a arguments) grant() locks.Grant {
	return locks.Grant{
		Resource: argument(a, "resource", resource), Owner: argument(a, "owner", "worker-1"), Token: argument(a, "token", locks.AnyToken),
	}
}

func (a arguments) request() locks.Request {
	return locks.Request{
		Resource: argument(a, "resource", resource), Owner: argument(a, "owner", "worker-1"), Attempt: argument(a, "attempt", "new"),
		TTL: argument(a, "ttl", ttl), Metadata: argument(a, "metadata", json.RawMessage(nil)),
	}
}

// calls are all methods, made so that each would change or find a lease of worker-1 if its arguments were right.
func calls() []call {
	return []call{
		{"Acquire", []string{"resource", "owner", "attempt"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			_, err := store.Acquire(c.Context(), args.request())
			return true, err
		}},
		{"AcquireAll", []string{"resource", "owner", "attempt"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			multi, ok := store.(locks.MultiAcquirer)
			if !ok {
				return false, nil
			}
			_, err := multi.AcquireAll(c.Context(), []locks.Request{c.request("beside it", "worker-1"), args.request()})
			return true, err
		}},
		{"Renew", []string{"resource", "owner"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			_, err := store.Renew(c.Context(), args.grant(), argument(args, "ttl", 2*ttl))
			return true, err
		}},
		{"Release", []string{"resource", "owner"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			return true, store.Release(c.Context(), args.grant())
		}},
		{"ReleaseAttempt", []string{"resource", "owner", "attempt"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			return true, store.ReleaseAttempt(c.Context(), argument(args, "resource", resource), argument(args, "owner", "worker-1"),
				argument(args, "attempt", "attempt-1"))
		}},
		{"Get", []string{"resource"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			_, err := store.Get(c.Context(), argument(args, "resource", resource))
			return true, err
		}},
		{"Enqueue", []string{"resource", "owner", "attempt"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			queuer, ok := store.(locks.Queuer)
			if !ok {
				return false, nil
			}
			_, err := queuer.Enqueue(c.Context(), args.request(), 0)
			return true, err
		}},
		{"Waiters", []string{"resource"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			queuer, ok := store.(locks.Queuer)
			if !ok {
				return false, nil
			}
			_, err := queuer.Waiters(c.Context(), argument(args, "resource", resource), 1)
			return true, err
		}},
		{"Holders", []string{"resource"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			sharer, ok := store.(locks.Sharer)
			if !ok {
				return false, nil
			}
			_, err := sharer.Holders(c.Context(), argument(args, "resource", resource), 1)
			return true, err
		}},
		{"ForceRelease", []string{"resource"}, func(c *check, store locks.Store, args arguments) (bool, error) {
			forcer, ok := store.(locks.ForceReleaser)
			if !ok {
				return false, nil
			}
			_, err := forcer.ForceRelease(c.Context(), argument(args, "resource", resource), argument(args, "token", int64(1)))
			return true, err
		}},
	}
}

// wantRefused says that the call is refused for the field.
func (c *check) wantRefused(call call, args arguments, field string) {
	c.Helper()
	for _, store := range []locks.Store{c.a, c.b} {
		if able, err := call.do(c, store, args); able {
			c.wantInvalid(err, field, "%s with %s %.60q", call.name, field, args[field])
		}
	}
}

// wantInvalid says that err is an *InvalidError that names the field.
func (c *check) wantInvalid(err error, field, format string, args ...any) {
	c.Helper()
	var invalid *locks.InvalidError
	if !errors.Is(err, locks.ErrInvalid) || !errors.As(err, &invalid) {
		c.Errorf(format+": err = %v, want an *InvalidError", append(args, err)...)
	} else if invalid.Field != field {
		c.Errorf(format+": InvalidError names %q, want %q", append(args, invalid.Field, field)...)
	}
}

// refused says that the values of the field are refused by the named calls and change neither a held nor a free
// resource.
func (c *check) refused(field string, values []any, names ...string) {
	c.Helper()
	held := c.acquire(c.a, resource, "worker-1")
	for _, call := range calls() {
		for _, name := range names {
			if call.name != name {
				continue
			}
			for _, value := range values {
				c.wantRefused(call, arguments{field: value}, field)
				c.wantRefused(call, arguments{field: value, "resource": "free"}, field)
			}
		}
	}
	c.wantStored(held)
	c.wantFree("free")
	c.wantRows(1)
	c.wantNobodyWaits(resource, "free")
}

func invalidTTLs(c *check) {
	c.refused("ttl", []any{
		time.Duration(0), -time.Second, time.Nanosecond, locks.MinTTL - 1, locks.MaxTTL + 1, time.Duration(math.MaxInt64), time.Duration(math.MinInt64),
	}, "Acquire", "AcquireAll", "Enqueue", "Renew")
}

func invalidMetadata(c *check) {
	var values []any
	for _, text := range []string{
		"", " ", "[]", `"text"`, "null", "1", "true", "{", "}", "{}{}", "{} x", `{"a":}`, `{'a':1}`, "{\"a\":\"\xff\"}", `{"a":NaN}`, "\ufeff{}", "{\"a\":\"\x00\"}",
		`{"pad":"` + strings.Repeat("x", locks.MaxMetadataBytes-len(`{"pad":""}`)+1) + `"}`, strings.Repeat(" ", locks.MaxMetadataBytes) + "{}",
	} {
		values = append(values, json.RawMessage(text))
	}
	c.refused("metadata", values, "Acquire", "AcquireAll", "Enqueue")
}

func invalidTokens(c *check) {
	bad := []any{int64(0), int64(-2), int64(1 << 53), int64(math.MaxInt64), int64(math.MinInt64)}
	c.refused("token", bad, "Renew", "Release")
	c.release(c.a, c.get(c.a, resource).Grant())
	c.refused("token", append(bad, locks.AnyToken), "ForceRelease") // an operator names the token that was seen
}

func invalidLimits(c *check) {
	held := c.acquire(c.a, resource, "worker-1")
	c.acquire(c.b, "ended", "worker-1")
	c.expire("ended")
	if lister, ok := c.b.(locks.Lister); ok {
		for _, limit := range []int{-1, math.MinInt, locks.MaxListLimit + 1, math.MaxInt} {
			page, err := lister.List(c.Context(), locks.ListQuery{Limit: limit})
			c.wantInvalid(err, "limit", "List with limit %d", limit)
			if len(page.Locks) > 0 {
				c.Errorf("List with limit %d returned leases beside its error", limit)
			}
		}
		for _, bad := range badNames()[1:] { // the empty name selects all
			_, err := lister.List(c.Context(), locks.ListQuery{Prefix: bad})
			c.wantInvalid(err, "prefix", "List with prefix %.60q", bad)
			_, err = lister.List(c.Context(), locks.ListQuery{After: bad})
			c.wantInvalid(err, "after", "List with after %.60q", bad)
			_, err = lister.List(c.Context(), locks.ListQuery{Owner: bad})
			c.wantInvalid(err, "owner", "List with owner %.60q", bad)
		}
	}
	if purger, ok := c.b.(locks.Purger); ok {
		for _, limit := range []int{0, -1, math.MinInt} {
			n, err := purger.Purge(c.Context(), limit)
			c.wantInvalid(err, "limit", "Purge with limit %d", limit)
			if n != 0 {
				c.Errorf("Purge with limit %d deleted %d rows", limit, n)
			}
		}
	}
	c.wantStored(held)
	c.wantRows(2)
}

func invalidLimitsAccepted(c *check) {
	for _, ttl := range []time.Duration{locks.MinTTL, locks.MaxTTL} {
		request := c.request(ttl.String(), strings.Repeat("o", locks.MaxOwnerBytes))
		request.TTL = ttl
		request.Attempt = strings.Repeat("a", locks.MaxAttemptBytes)
		c.grant(c.a, request)
	}
	largest := locks.Grant{Resource: locks.MaxTTL.String(), Owner: strings.Repeat("o", locks.MaxOwnerBytes), Token: 1<<53 - 1}
	_, err := c.a.Renew(c.Context(), largest, ttl)
	c.wantLost(err, largest, locks.ErrSuperseded)
	c.wantLost(c.b.Release(c.Context(), largest), largest, locks.ErrSuperseded)
}
