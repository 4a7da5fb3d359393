package memstore

import "time"

// Expire is a back door for tests: it ends the resource's lease now, as if its TTL had passed. The row stays. On a
// resource without a live lease it does nothing. What an open transaction has changed it leaves alone, as the other back
// doors do: the commit puts it in.
func (s *Store) Expire(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, r := time.Now(), s.rows[resource]; r.live(now) {
		ended := *r
		ended.expiresAt = now
		s.rows[resource] = &ended
	}
}

// ExpireShare is a back door for tests: it ends the owner's share of the resource now, as if its TTL had passed. Where there is
// no live one it does nothing.
func (s *Store) ExpireShare(resource, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, share := time.Now(), s.shares[resource][owner]
	if share == nil || !s.isLiveShare(share, now) {
		return
	}
	ended := *share
	ended.expiresAt = now
	s.setShare(&ended)
	s.endGroup(resource, now)
}

// ExpireTicket is a back door for tests: it ends the ticket of one who waits, as if its process had not kept it. For a
// number that no live ticket has it does nothing.
func (s *Store) ExpireTicket(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, t := range s.waiting.of {
		if t.number == number && t.live(now) {
			t.expireAt = now
		}
	}
}

// DeleteRow is a back door for tests: it deletes the resource's row, as a DELETE by hand would. On a resource without
// a row it does nothing.
func (s *Store) DeleteRow(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, resource)
}

// Truncate is a back door for tests: it deletes every row and counts ids from 1 again, as TRUNCATE … RESTART IDENTITY
// would. Tokens go on growing.
func (s *Store) Truncate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rows)
	clear(s.shares)
	s.lastID = 0
}

// Rows returns how many rows there are, those of ended leases included.
func (s *Store) Rows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

// Tickets returns how many tickets of waiters there are, those that have ended included.
func (s *Store) Tickets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting.of)
}
