package lockstest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// faultyShares are the shares of a faulty store's resources, by the resource as it is compared. A group is a row without an
// owner, whose token its shares name. The store's mutex protects them.
type faultyShares struct {
	shares map[string][]*faultyShare
}

type faultyShare struct {
	faultyRow
	group int64
}

func (r *faultyRow) isGroup() bool { return r != nil && r.lock.Owner == "" }

func (s *faulty) share(key, owner string) *faultyShare {
	for _, share := range s.shares[key] {
		if s.fold(share.lock.Owner) == s.fold(owner) {
			return share
		}
	}
	return nil
}

func (s *faulty) liveShare(share *faultyShare) bool {
	if share == nil {
		return false
	}
	group := s.rows[s.fold(share.lock.Resource)]
	in := s.live(group) && group.isGroup() && group.lock.Token == share.group
	return in && (s.live(&share.faultyRow) || s.has("shares end with their group"))
}

func (s *faulty) liveShares(key string) []*faultyShare {
	var live []*faultyShare
	for _, share := range s.shares[key] {
		if s.liveShare(share) {
			live = append(live, share)
		}
	}
	return live
}

// seen is the share as a row that has ended when its group has.
func (s *faulty) seen(share *faultyShare) *faultyRow {
	r := share.faultyRow
	r.ended = r.ended || !s.liveShare(share)
	return &r
}

func (s *faulty) isGuarded(share *faultyShare) bool {
	for _, t := range s.txs {
		if slices.ContainsFunc(t.held, func(lock faultyLock) bool { return lock.share == share.lock.Token }) {
			return true
		}
	}
	return false
}

// busy says that the one writer there may be is an open transaction.
func (s *faulty) busy() error {
	for _, t := range s.txs {
		if s.oneWriter && len(t.held) > 0 {
			return locks.ErrBusy
		}
	}
	return nil
}

// ownsShare refuses who has a share, and would wait for itself.
func (s *faulty) ownsShare(q locks.Request, key string) error {
	if share := s.share(key, q.Owner); s.liveShare(share) && !s.has("an owner waits for itself") {
		return &locks.SlotsError{Resource: q.Resource, Held: share.lock.Slots}
	}
	return nil
}

func (s *faulty) acquireShare(q locks.Request) (locks.Lock, error) {
	key := s.fold(q.Resource)
	group := s.rows[key]
	if s.has("a group is looked for, then begun") {
		s.pause()
	}
	if !s.live(group) {
		if err := s.closed(key, group); err != nil {
			return locks.Lock{}, err
		}
		if err := s.othersTurn(q, s, group, false); err != nil {
			return locks.Lock{}, err
		}
		begun := &faultyRow{lock: locks.Lock{Resource: q.Resource, Slots: q.Slots, AcquiredAt: s.now}}
		if begun.lock.ID = s.newID(); group != nil {
			begun.lock.ID = group.lock.ID
		}
		if s.has("a group has the metadata of its first share") {
			begun.lock.Metadata = q.Metadata
		}
		begun.lock.Token = s.draw(group)
		s.rows[key] = begun
		return s.grantShare(q, key, begun), nil
	}
	own := s.share(key, q.Owner)
	switch isOwn := s.liveShare(own); {
	case !group.isGroup() && s.has("a share is granted beside a lease"):
		group.lock.Owner, group.lock.Slots = "", q.Slots
	case group.lock.Owner == q.Owner, group.isGroup() && group.lock.Slots != q.Slots && !s.has("any slots fit"):
		return locks.Lock{}, s.unfit(q, group)
	case !group.isGroup(), s.has("readers keep each other out") && q.Slots == locks.Shared && !isOwn:
		return locks.Lock{}, s.told(q, group)
	case isOwn && own.attempt == q.Attempt && !s.has("a retry of a share is a new grant"):
		s.found(q)
		return s.record(&own.faultyRow), nil
	case s.busy() != nil:
		return locks.Lock{}, s.busy()
	case own != nil && s.isGuarded(own) && !s.has("a guarded share is replaced") && (isOwn || !s.has("a guarded share is replaced once it has ended")):
		return locks.Lock{}, locks.Held(q.Resource, nil)
	case isOwn && !s.has("an owner's new attempt takes a slot") && !s.has("waiters keep the owners of shares out"):
	case s.othersTurn(q, s, group, false) != nil && !s.has("shares overtake who waits"):
		return locks.Lock{}, locks.Held(q.Resource, nil)
	case q.Slots != locks.Shared && s.taken(q, group) >= q.Slots:
		return locks.Lock{}, s.told(q, s.endsFirst(key, group))
	}
	if s.has("slots are counted, then taken") {
		s.pause()
		if now := s.rows[key]; !s.live(now) || now.lock.Token != group.lock.Token {
			return locks.Lock{}, locks.Held(q.Resource, nil)
		}
	}
	return s.grantShare(q, key, group), nil
}

func (s *faulty) newID() int64 {
	s.ids++
	return s.ids
}

func (s *faulty) unfit(q locks.Request, group *faultyRow) error {
	if s.has("other slots are told as held") && group.isGroup() || s.has("an owner waits for itself") && !group.isGroup() {
		return s.told(q, group)
	}
	return &locks.SlotsError{Resource: q.Resource, Held: group.lock.Slots, Asked: q.Slots}
}

func (s *faulty) told(q locks.Request, holder *faultyRow) error {
	lock := s.record(holder)
	if s.has("the holder is not told") {
		return locks.Held(q.Resource, nil)
	}
	return locks.Held(q.Resource, &lock)
}

func (s *faulty) endsFirst(key string, group *faultyRow) *faultyRow {
	live := s.liveShares(key)
	if len(live) == 0 {
		return group
	}
	first := slices.MinFunc(live, func(x, y *faultyShare) int {
		if s.has("the share that ends last is told") {
			x, y = y, x
		}
		return x.lock.ExpiresAt.Compare(y.lock.ExpiresAt)
	})
	return &first.faultyRow
}

// taken is how many slots are taken, by ended shares that are guarded, too.
func (s *faulty) taken(q locks.Request, group *faultyRow) (n int) {
	for key, shares := range s.shares {
		if key != s.fold(q.Resource) && !s.has("slots are counted over all resources") {
			continue
		}
		for _, share := range shares {
			guarded := s.isGuarded(share) && !s.has("a guarded share gives its slot back")
			if share.group == group.lock.Token && (s.live(&share.faultyRow) || guarded || s.has("an ended share keeps its slot")) ||
				key != s.fold(q.Resource) {
				n++
			}
		}
	}
	switch {
	case s.has("one more gets in than there are slots"):
		return n - 1
	case s.has("a released slot is lost"):
		return n + group.released
	}
	return n
}

func (s *faulty) grantShare(q locks.Request, key string, group *faultyRow) locks.Lock {
	if s.rows[key] == nil { // a fault has not seen that it went
		s.rows[key] = group
	}
	group = s.rows[key]
	own := s.share(key, q.Owner)
	share := &faultyShare{group: group.lock.Token}
	share.attempt = q.Attempt
	share.lock = locks.Lock{
		Resource: q.Resource, Owner: q.Owner, Slots: q.Slots, AcquiredAt: s.now, ExpiresAt: s.now.Add(q.TTL), Metadata: bytes.Clone(q.Metadata),
	}
	if own != nil && !s.has("an owner's new share is a new row") {
		share.lock.ID = own.lock.ID
	} else {
		share.lock.ID = s.newID()
	}
	share.lock.Token = s.draw(&faultyRow{lock: locks.Lock{Token: group.lock.Token}})
	if s.has("a share's token is drawn, then kept") {
		s.pause()
	}
	s.shares[key] = append(slices.DeleteFunc(s.shares[key], func(other *faultyShare) bool { return other == own }), share)
	if s.has("shares count their tokens in the group") {
		share.lock.Token = group.lock.Token + int64(len(s.shares[key]))
	}
	s.serve(q, s)
	s.endGroup(key)
	s.freed(q.Resource, "a grant of a share")
	return s.record(&share.faultyRow)
}

// endGroup makes the group end with its last share.
func (s *faulty) endGroup(key string) {
	group := *s.rows[key]
	last := s.now
	if s.has("a group never ends earlier") || s.has("a group outlives its shares") {
		last = group.lock.ExpiresAt
	}
	group.ended = !s.has("a group outlives its shares")
	for _, share := range s.shares[key] {
		if share.group == group.lock.Token && s.live(&share.faultyRow) {
			if group.ended = false; last.Before(share.lock.ExpiresAt) {
				last = share.lock.ExpiresAt
			}
		}
	}
	if s.live(&group) && !s.has("a group keeps its end") || group.lock.ExpiresAt.IsZero() {
		group.lock.ExpiresAt = last
	}
	s.rows[key] = &group
}

// current returns the share of the grant where the resource's row is a group's, nil where it is to be looked for in the rows.
func (s *faulty) current(g locks.Grant, r *faultyRow) *faultyShare {
	share := s.share(s.fold(g.Resource), g.Owner)
	if share != nil && (r.isGroup() && share.group == r.lock.Token || s.has("an old share speaks for ever")) {
		return share
	}
	return nil
}

func (s *faulty) renewShare(g locks.Grant, ttl time.Duration, share *faultyShare) (locks.Lock, error) {
	if err := cmp.Or(s.refuse(g, s.seen(share), "renew"), s.busy()); err != nil {
		return locks.Lock{}, err
	}
	if s.has("a guard blocks its holder") && s.isGuarded(share) {
		return locks.Lock{}, locks.ErrGuarded
	}
	share.ended, share.lock.ExpiresAt = false, s.now.Add(ttl)
	s.endGroup(s.fold(g.Resource))
	s.freed(g.Resource, "a renewal")
	return s.record(&share.faultyRow), nil
}

func (s *faulty) releaseShare(g locks.Grant, share *faultyShare) error {
	if err := s.refuse(g, s.seen(share), "release"); err != nil {
		return err
	}
	if s.has("a release of a share looks, then deletes") {
		s.pause()
	}
	return s.freeShare(share, "a release")
}

func (s *faulty) releaseShareAttempt(resource, owner, attempt string) error {
	share := s.share(s.fold(resource), owner)
	if !s.liveShare(share) || share.attempt != attempt && !s.has("release by attempt ignores the attempt") {
		return locks.Refuse(locks.Grant{Resource: resource, Owner: owner, Token: locks.AnyToken}, nil, false)
	}
	return s.freeShare(share, "a release by attempt")
}

// freeShare ends a share, and its group with the last one.
func (s *faulty) freeShare(share *faultyShare, reason string) error {
	key := s.fold(share.lock.Resource)
	others := slices.ContainsFunc(s.shares[key], s.isGuarded) && s.has("a guard is of all shares")
	switch guarded := s.isGuarded(share) && !s.has("a guarded share can be released"); {
	case s.busy() != nil:
		return s.busy()
	case guarded || others:
		return locks.ErrGuarded
	}
	s.shares[key] = slices.DeleteFunc(s.shares[key], func(other *faultyShare) bool { return other == share })
	if s.rows[key] == nil { // a fault's second release
		return nil
	}
	s.rows[key].released++
	s.endGroup(key)
	if empty := !s.has("the last share leaves its group") && len(s.liveShares(key)) == 0; empty || s.has("a release of a share ends its group") {
		s.remove(share.lock.Resource)
	}
	s.freed(share.lock.Resource, reason)
	return nil
}

func (s *faulty) forceReleaseShare(resource string, token int64) (locks.Lock, error) {
	for _, share := range s.liveShares(s.fold(resource)) {
		if share.lock.Token == token && !s.has("groups alone can be forced") {
			ended := s.record(&share.faultyRow)
			return ended, s.freeShare(share, "a forced release")
		}
	}
	return locks.Lock{}, &locks.LostError{Grant: locks.Grant{Resource: resource, Token: token}, Reason: locks.ErrSuperseded}
}

// guardShare locks the share, and for whoever would have the resource alone its group.
func (t *faultyTx) guardShare(g locks.Grant, share *faultyShare) error {
	if err := cmp.Or(t.s.refuse(g, t.s.seen(share), "guard"), t.s.lockedTo(t, "", "")); err != nil {
		t.refused(t.s.fold(g.Resource))
		return err
	}
	if t.s.has("one guard at a time") && t.s.isGuarded(share) {
		return locks.ErrGuarded
	}
	if !t.s.has("a guard of a share leaves its group alone") {
		t.lock(t.s.fold(g.Resource), true)
	}
	t.root.held = append(t.root.held, faultyLock{guard: true, share: share.lock.Token})
	return nil
}

func errFaultyShare() error {
	return &locks.InvalidError{Field: "grant", Reason: "must not be of a share"}
}

func (s *faulty) expireShare(resource, owner string) {
	s.enter()
	defer s.mu.Unlock()
	if share := s.share(s.fold(resource), owner); s.liveShare(share) {
		share.ended = true
		s.endGroup(s.fold(resource))
		s.freed(resource, "the end of a share")
	}
}

func (s *faulty) Holders(ctx context.Context, resource string, limit int) ([]locks.Lock, error) {
	if err := s.begin(ctx, locks.ValidateHolders(resource, limit)); err != nil {
		return nil, err
	}
	s.enter()
	defer s.mu.Unlock()
	live := s.liveShares(s.fold(resource))
	slices.SortFunc(live, func(x, y *faultyShare) int {
		if s.has("holders are in the order of their names") {
			return cmp.Compare(x.lock.Owner, y.lock.Owner)
		}
		return cmp.Compare(x.lock.Token, y.lock.Token)
	})
	if s.has("holders ignore their limit") {
		limit = len(live)
	}
	var holders []locks.Lock
	for _, share := range live[:min(len(live), max(limit, 0))] {
		holders = append(holders, s.record(&share.faultyRow))
	}
	if r := s.rows[s.fold(resource)]; s.has("who has it alone is a holder") && s.live(r) && !r.isGroup() {
		holders = append(holders, s.record(r))
	}
	return holders, nil
}
