package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// Defaults of [Observe].
const (
	// DefaultMinPoll is the pause between two looks after a change.
	DefaultMinPoll = 100 * time.Millisecond
	// DefaultMaxPoll is the longest pause between two looks.
	DefaultMaxPoll = 2 * time.Second
)

// Leader is who leads, as the store says. The zero Leader is nobody.
type Leader struct {
	// Owner is the candidate's name, a slash and a random part; see [Config].Name.
	Owner string
	// Token names the term, and grows from each to the next. It is 0 where nobody leads.
	Token int64
	// Since is when the term began, by the store's clock, in UTC.
	Since time.Time
	// Metadata is the JSON object of the leader's [Config], or nil.
	Metadata json.RawMessage
}

// ObserveOption configures [Observe].
type ObserveOption func(*observation) error

type observation struct{ least, most time.Duration }

// WithPoll bounds the pause between two looks, 100 ms and 2 s by default: it doubles from least after a change to most, and
// each pause is shortened by a random part of up to half. From 1 ms to 24 h.
func WithPoll(least, most time.Duration) ObserveOption {
	return func(o *observation) error {
		o.least, o.most = least, most
		if least < time.Millisecond || most < least || most > locks.MaxTTL {
			return &locks.InvalidError{Field: "poll", Reason: fmt.Sprintf(
				"must be from %v to %v, the least no longer than the most, got %v and %v", time.Millisecond, locks.MaxTTL, least, most,
			)}
		}
		return nil
	}
}

// Observe yields who leads: at once, and then each time that it has changed, until ctx ends or the loop is left. A pair is
// either a Leader, which is zero where nobody leads, or an error. It is for those who do not campaign: it looks at the store,
// with pauses ([WithPoll]), and when the leader's lease can end. It has no goroutine, and nothing to close. The locker's Close
// does not end it. The sequence may be ranged over again, also at the same time.
//
// Terms that come and go between two looks are not seen. A leader is told of until its lease is over or freed: it may have
// stopped before, and may have been followed by another since. Tokens grow from each leader to the next.
//
// Errors: [locks.ErrInvalid], after which the sequence ends. A fault of the store is yielded once, and the leader, changed or
// not, when the store answers again. The end of ctx is yielded to nobody.
func Observe(ctx context.Context, locker *locks.Locker, resource string, options ...ObserveOption) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		o, err := observing(locker, options)
		if err != nil {
			yield(Leader{}, err)
			return
		}
		var (
			known   Leader
			unknown = true // nobody was told of yet, or a fault was since
			failing bool
			pauses  = newPauses(o.least, o.most)
		)
		for ctx.Err() == nil {
			lock, err := locker.Get(ctx, resource)
			switch {
			case ctx.Err() != nil: // nobody is told of anything then
				return
			case err == nil || errors.Is(err, locks.ErrNotFound):
				var leader Leader
				if err == nil && lock.Slots == 0 { // those who share the resource lead nobody
					leader = Leader{Owner: lock.Owner, Token: lock.Token, Since: lock.AcquiredAt, Metadata: lock.Metadata}
				}
				if unknown || leader.Token != known.Token {
					known, pauses = leader, newPauses(o.least, o.most)
					if !yield(leader, nil) {
						return
					}
				}
				unknown, failing = false, false
			case errors.Is(err, locks.ErrInvalid):
				yield(Leader{}, err)
				return
			case !failing:
				unknown, failing = true, true
				if !yield(Leader{}, err) {
					return
				}
			}
			pause := pauses.next()
			if err == nil && lock.Remaining < pause { // it may be dead: be there when its lease ends, though not all at once
				pause = lock.Remaining + o.least - jitter(o.least/2)
			}
			sleep(ctx, pause)
		}
	}
}

func observing(locker *locks.Locker, options []ObserveOption) (observation, error) {
	o := observation{DefaultMinPoll, DefaultMaxPoll}
	if locker == nil {
		return o, &locks.InvalidError{Field: "locker", Reason: "must not be nil"}
	}
	for _, option := range options {
		if option == nil {
			return o, &locks.InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}
