package bunstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/rowlease/rowlease/locks"
)

var _ locks.Sharer = (*Store)(nil)

// A resource that several hold has one row in the lease table, without an owner: the group's. So whoever asks for it alone, in
// a transaction too, meets a lease of somebody else's, and needs to know nothing of shares. Its metadata says what kind of
// group it is, its token names it, and it ends with the last of its shares, which are rows of a table of their own and name it
// by that token. A share is live while neither its own end nor its group's has come.

// shareEngine is the part of an engine that keeps shares. What it is given is valid, its context has a deadline. Renewals,
// releases and guards find out by themselves that a grant is of a share: the resource's row is a group's.
type shareEngine interface {
	acquireShare(ctx context.Context, request locks.Request) (locks.Lock, error)
	holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error)
}

// Holders implements [locks.Sharer]. Like [Store.Get] it never reads from a replica.
func (s *Store) Holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error) {
	if err := locks.ValidateHolders(resource, limit); err != nil {
		return nil, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	holders, err := s.engine.holders(ctx, resource, limit)
	return holders, s.fault(ctx, "list holders", err)
}

// slotsArg is the metadata of a group: what kind it is, for the statements and for people who look at the row.
func slotsArg(slots int) string {
	if slots == locks.Shared {
		return `{"shared":true}`
	}
	return fmt.Sprintf(`{"slots":%d}`, slots)
}

// slotsOf reads a group's metadata, 0 where it is none.
func slotsOf(metadata string) (slots int) {
	if metadata == slotsArg(locks.Shared) {
		return locks.Shared
	}
	if _, err := fmt.Sscanf(metadata, `{"slots":%d}`, &slots); err != nil {
		return 0
	}
	return slots
}

// mostArg is how many shares there may be, 0 for any number.
func mostArg(slots int) int { return max(slots, 0) }

// shareStood is how a resource stood when a share of it was asked for.
type shareStood struct {
	lease *row // live, a group's or not
	own   *row // the owner's live share, "mine" where it is the attempt's
	first *row // the live share that ends first, where all slots are taken
	turn  bool // of somebody else who waits
}

// add takes one row of the statement that looks. What is over by the time that its row is told is none.
func (s *shareStood) add(r *row) {
	if r.what != "queued" && !r.live() {
		return
	}
	switch r.what {
	case "lease":
		s.lease = r
	case "mine", "own":
		s.own = r
	case "full":
		s.first = r
	case "queued":
		s.turn = true
	}
}

// settle refuses the request where it is to be refused, and returns the share that its attempt has already. Nil and nil is for
// granting it: in a group that begins where there is no lease.
func (s *shareStood) settle(request locks.Request) (found *locks.Lock, err error) {
	if s.lease != nil {
		lease := &s.lease.lock
		switch {
		case lease.Owner == request.Owner, lease.Owner == "" && lease.Slots != request.Slots:
			return nil, &locks.SlotsError{Resource: request.Resource, Held: lease.Slots, Asked: request.Slots}
		case lease.Owner != "":
			return nil, locks.Held(request.Resource, lease)
		case s.own != nil && s.own.what == "mine":
			s.own.lock.Slots = request.Slots
			return &s.own.lock, nil
		case s.own != nil: // a new grant in place, whoever waits
			return nil, nil
		}
	}
	switch {
	case s.turn && !request.Barge:
		return nil, locks.Held(request.Resource, nil)
	case s.first != nil:
		s.first.lock.Slots = request.Slots
		return nil, locks.Held(request.Resource, &s.first.lock)
	}
	return nil, nil
}

// heldBy refuses an exclusive request of somebody who is not that holder. Where the holder is a group, seen, the statement that
// tells of an owner's share, finds out whether it would wait for itself.
func (r runner) heldBy(ctx context.Context, q querier, seen string, request locks.Request, holder *locks.Lock) error {
	if holder.Owner == "" {
		own, err := r.one(ctx, q, seen, request.Resource, request.Owner)
		if err != nil {
			return err
		}
		if own != nil && own.live() {
			return &locks.SlotsError{Resource: request.Resource, Held: holder.Slots}
		}
	}
	return locks.Held(request.Resource, holder)
}

// errShareInTx refuses what a transaction cannot do with a share.
func errShareInTx() error {
	return &locks.InvalidError{Field: "grant", Reason: "must not be of a share: it is renewed and released outside of transactions"}
}

// sharesOf runs a statement that answers with shares and the kind of their group.
func (r runner) sharesOf(ctx context.Context, q querier, most int, statement string, args ...any) (found []locks.Lock, err error) {
	err = r.query(ctx, q, most, func(rows *sql.Rows) error {
		var share row
		if err := share.scan(rows); err != nil {
			return err
		}
		share.lock.Slots = slotsOf(share.what)
		found = append(found, share.lock)
		return nil
	}, statement, args...)
	return found, err
}
