package memstore

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

var _ locks.Sharer = (*Store)(nil)

// A resource that a group holds has a row without an owner, whose token the shares name; see group. The steps on shares run
// under the store's mutex. None is a part of a transaction but a guard.

// Holders implements [locks.Sharer].
func (s *Store) Holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := locks.ValidateHolders(resource, limit); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	live := s.liveShares(resource, now)
	slices.SortFunc(live, func(a, b *row) int { return cmp.Compare(a.token, b.token) })
	holders := make([]locks.Lock, 0, min(limit, len(live)))
	for _, share := range live[:min(limit, len(live))] {
		holders = append(holders, share.lock(now))
	}
	return holders, nil
}

// isShared reports whether the resource's row is a group's, also one that has ended.
func (s *Store) isShared(resource string) bool { return s.rows[resource].isGroup() }

// liveShares returns the live shares of the resource.
func (s *Store) liveShares(resource string, now time.Time) []*row {
	var live []*row
	for _, share := range s.shares[resource] {
		if s.isLiveShare(share, now) {
			live = append(live, share)
		}
	}
	return live
}

// isLiveShare reports whether the share's end has not come, nor that of its group.
func (s *Store) isLiveShare(share *row, now time.Time) bool {
	if !share.live(now) {
		return false
	}
	group := s.rows[share.resource]
	return group.live(now) && group.isGroup() && group.token == share.group
}

// isGuarded reports whether an open transaction guards the share.
func (s *Store) isGuarded(share *row) bool {
	for t := range s.open {
		for _, l := range t.levels {
			if _, ok := l.guardedShares[share.token]; ok {
				return true
			}
		}
	}
	return false
}

func (s *Store) acquireShare(request locks.Request) (locks.Lock, error) {
	now, resource := time.Now(), request.Resource
	r := s.rows[resource]
	if !r.live(now) {
		if s.others(nil, resource) != (interest{}) || s.isOthersTurn(request, now) {
			return locks.Lock{}, locks.Held(resource, nil)
		}
		s.beginGroup(request, now)
		return s.grantShare(request, now), nil
	}
	holder := r.lock(now)
	switch own := s.shares[resource][request.Owner]; {
	case r.owner == request.Owner, r.isGroup() && r.slots != request.Slots:
		return locks.Lock{}, &locks.SlotsError{Resource: resource, Held: r.slots, Asked: request.Slots}
	case !r.isGroup():
		return locks.Lock{}, locks.Held(resource, &holder)
	case own != nil && s.isLiveShare(own, now) && own.attempt == request.Attempt:
		s.waiting.remove(waitsFor(request)) // drawn by a retry that came after the grant
		return own.lock(now), nil
	case own != nil && s.isGuarded(own):
		return locks.Lock{}, locks.Held(resource, nil)
	case own != nil && s.isLiveShare(own, now): // a new grant in place, whoever waits
	case s.isOthersTurn(request, now):
		return locks.Lock{}, locks.Held(resource, nil)
	case request.Slots != locks.Shared && s.taken(resource, now) >= request.Slots:
		first := slices.MinFunc(s.liveShares(resource, now), func(a, b *row) int { return a.expiresAt.Compare(b.expiresAt) })
		holder = first.lock(now)
		return locks.Lock{}, locks.Held(resource, &holder)
	}
	return s.grantShare(request, now), nil
}

// taken is how many slots of a live group are taken: by live shares, and by ended ones that a transaction guards.
func (s *Store) taken(resource string, now time.Time) int {
	n, group := 0, s.rows[resource].token
	for _, share := range s.shares[resource] {
		if share.group == group && (share.live(now) || s.isGuarded(share)) {
			n++
		}
	}
	return n
}

// beginGroup puts a group in the place of a row that has ended, or of none. Its end is the first share's to say.
func (s *Store) beginGroup(request locks.Request, now time.Time) {
	group := &row{resource: request.Resource, slots: request.Slots, acquiredAt: now, expiresAt: now}
	if r := s.rows[request.Resource]; r != nil { // taken over in place
		group.id = r.id
	}
	s.identify(group)
	s.put(nil, request.Resource, group)
}

// grantShare puts a share into the live group, in place of one that the owner had, and tells the next one who waits: it may
// fit in, too.
func (s *Store) grantShare(request locks.Request, now time.Time) locks.Lock {
	group := s.rows[request.Resource]
	share := &row{
		resource: request.Resource, owner: request.Owner, attempt: request.Attempt, slots: group.slots, group: group.token,
		acquiredAt: now, expiresAt: now.Add(request.TTL), metadata: bytes.Clone(request.Metadata),
	}
	if own := s.shares[request.Resource][request.Owner]; own != nil {
		share.id = own.id
	}
	s.identify(share)
	s.setShare(share)
	s.waiting.remove(waitsFor(request))
	s.endGroup(request.Resource, now)
	s.wakeFirst(request.Resource)
	return share.lock(now)
}

func (s *Store) setShare(share *row) {
	if s.shares == nil {
		s.shares = make(map[string]map[string]*row)
	}
	if s.shares[share.resource] == nil {
		s.shares[share.resource] = make(map[string]*row)
	}
	s.shares[share.resource][share.owner] = share
}

// endGroup makes the group end with the last of its live shares, now where there is none.
func (s *Store) endGroup(resource string, now time.Time) {
	group := *s.rows[resource]
	group.expiresAt = now
	for _, share := range s.shares[resource] {
		if share.group == group.token && group.expiresAt.Before(share.expiresAt) {
			group.expiresAt = share.expiresAt
		}
	}
	s.rows[resource] = &group
}

// share returns the grant's share, or why it is not current.
func (s *Store) share(grant locks.Grant, now time.Time) (*row, error) {
	share := s.shares[grant.Resource][grant.Owner]
	if share == nil || share.group != s.rows[grant.Resource].token {
		return nil, s.rows[grant.Resource].refuse(grant, now)
	}
	current := share.lock(now)
	return share, locks.Refuse(grant, &current, s.isLiveShare(share, now))
}

func (s *Store) renewShare(t *transaction, grant locks.Grant, ttl time.Duration) (locks.Lock, error) {
	now := time.Now()
	share, err := s.share(grant, now)
	switch {
	case err != nil:
		return locks.Lock{}, err
	case t != nil:
		return locks.Lock{}, errShareInTx()
	}
	renewed := *share
	renewed.expiresAt = now.Add(ttl)
	s.setShare(&renewed)
	s.endGroup(grant.Resource, now)
	return renewed.lock(now), nil
}

func (s *Store) releaseShare(t *transaction, grant locks.Grant) error {
	share, err := s.share(grant, time.Now())
	switch {
	case err != nil:
		return err
	case t != nil:
		return errShareInTx()
	}
	return s.freeShare(share)
}

func (s *Store) releaseShareAttempt(resource, owner, attempt string) error {
	share := s.shares[resource][owner]
	if share == nil || share.attempt != attempt || !s.isLiveShare(share, time.Now()) {
		return locks.Refuse(locks.Grant{Resource: resource, Owner: owner}, nil, false)
	}
	return s.freeShare(share)
}

// freeShare deletes a live share, unless a transaction guards it.
func (s *Store) freeShare(share *row) error {
	if s.isGuarded(share) {
		return locks.ErrGuarded
	}
	delete(s.shares[share.resource], share.owner)
	if len(s.shares[share.resource]) == 0 {
		delete(s.shares, share.resource)
	}
	now := time.Now()
	s.endGroup(share.resource, now)
	if !s.rows[share.resource].live(now) { // it was the last one
		s.put(nil, share.resource, nil)
	}
	s.wakeFirst(share.resource)
	return nil
}

func (s *Store) guardShare(t *transaction, grant locks.Grant) error {
	share, err := s.share(grant, time.Now())
	if err != nil {
		return err
	}
	t.top().guards[grant.Resource] = struct{}{} // who would hold it alone is kept out as by any guard
	t.top().guardedShares[share.token] = struct{}{}
	return nil
}

// forceReleaseShare ends the live share that has the token.
func (s *Store) forceReleaseShare(resource string, token int64) (locks.Lock, error) {
	now := time.Now()
	for _, share := range s.shares[resource] {
		if share.token == token && s.isLiveShare(share, now) {
			ended := share.lock(now)
			if err := s.freeShare(share); err != nil {
				return locks.Lock{}, err
			}
			return ended, nil
		}
	}
	return locks.Lock{}, &locks.LostError{Grant: locks.Grant{Resource: resource, Token: token}, Reason: locks.ErrSuperseded}
}

// ownShare refuses an exclusive request of one who has a share of the resource, and would wait for itself.
func (s *Store) ownShare(request locks.Request, now time.Time) error {
	if own := s.shares[request.Resource][request.Owner]; own != nil && s.isLiveShare(own, now) {
		return &locks.SlotsError{Resource: request.Resource, Held: own.slots}
	}
	return nil
}

// sweepShares forgets shares that have ended, but for those that a transaction guards.
func (s *Store) sweepShares(now time.Time) {
	for resource, shares := range s.shares {
		maps.DeleteFunc(shares, func(_ string, share *row) bool { return !s.isLiveShare(share, now) && !s.isGuarded(share) })
		if len(shares) == 0 {
			delete(s.shares, resource)
		}
	}
}

// lookAtShare tells how the first one who waits for a share stands.
func (s *Store) lookAtShare(resource string, slots int, now time.Time) (turn bool, after time.Duration) {
	r := s.rows[resource]
	switch {
	case !r.live(now):
		return true, 0
	case !r.isGroup() || r.slots != slots: // a turn it is, with other slots: to be refused
		return r.isGroup(), r.expiresAt.Sub(now)
	case slots == locks.Shared || s.taken(resource, now) < slots:
		return true, 0
	}
	after = r.expiresAt.Sub(now)
	for _, share := range s.liveShares(resource, now) {
		after = min(after, share.expiresAt.Sub(now))
	}
	return false, after
}

func errShareInTx() error {
	return &locks.InvalidError{Field: "grant", Reason: "must not be of a share: it is renewed and released outside of transactions"}
}
