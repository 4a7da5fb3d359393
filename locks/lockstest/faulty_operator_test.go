package lockstest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rowlease/rowlease/locks"
)

func (s *faulty) Get(ctx context.Context, resource string) (locks.Lock, error) {
	if err := s.begin(ctx, locks.ValidateResource(resource)); err != nil {
		return locks.Lock{}, err
	}
	s.enter()
	defer s.mu.Unlock()
	r := s.rows[s.fold(resource)]
	if r == nil || !s.live(r) && !s.has("ended leases are shown") {
		return locks.Lock{}, locks.ErrNotFound
	}
	return s.record(r), nil
}

func (s *faulty) List(ctx context.Context, q locks.ListQuery) (locks.Page, error) {
	if err := s.begin(ctx, q.Validate()); err != nil {
		return locks.Page{}, err
	}
	s.enter()
	defer s.mu.Unlock()
	if q.Limit == locks.DefaultListLimit && s.has("the default limit is another") {
		q.Limit = locks.MaxListLimit
	}
	if s.has("after must be there") && q.After != "" && s.rows[q.After] == nil {
		return locks.Page{}, nil
	}
	var found []*faultyRow
	for _, r := range s.rows {
		name, prefix := r.lock.Resource, q.Prefix
		if s.has("prefixes ignore case") {
			name, prefix = strings.ToLower(name), strings.ToLower(prefix)
		}
		match := strings.HasPrefix(name, prefix)
		if s.has("prefixes are patterns") {
			match = like([]rune(prefix), []rune(name))
		}
		if next := []byte(prefix); s.has("a prefix ends at its last byte plus one") && prefix != "" {
			next[len(next)-1]++
			match = name >= prefix && name < strings.ToValidUTF8(string(next), "")
		}
		match = match && (!r.isGroup() || !s.has("groups are not listed"))
		if match && r.lock.Resource > q.After && (s.live(r) || s.has("ended leases are shown")) &&
			(q.Owner == "" || r.lock.Owner == q.Owner || s.has("lists ignore the owner")) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *faultyRow) int {
		if s.has("lists are in another order") {
			return strings.Compare(strings.ToLower(a.lock.Resource), strings.ToLower(b.lock.Resource))
		}
		return strings.Compare(a.lock.Resource, b.lock.Resource)
	})
	page := locks.Page{More: len(found) > q.Limit}
	if s.has("a page that is full is the last") {
		page.More = len(found) > q.Limit+1
	}
	for _, r := range found[:min(len(found), q.Limit)] {
		l := s.record(r)
		if s.has("lists leave fields out") {
			l.Metadata = nil
		}
		page.Locks = append(page.Locks, l)
	}
	return page, nil
}

// like is SQL's LIKE pattern || '%'.
func like(pattern, text []rune) bool {
	switch {
	case len(pattern) == 0:
		return true
	case pattern[0] == '%':
		return like(pattern[1:], text) || len(text) > 0 && like(pattern, text[1:])
	}
	return len(text) > 0 && (pattern[0] == '_' || pattern[0] == text[0]) && like(pattern[1:], text[1:])
}

func (s *faulty) Purge(ctx context.Context, limit int) (int, error) {
	var valid error
	if limit < 1 {
		valid = &locks.InvalidError{Field: "limit"}
	}
	if err := s.begin(ctx, valid); err != nil {
		return 0, err
	}
	s.enter()
	defer s.mu.Unlock()
	var ended []string
	for name, r := range s.rows {
		if s.lockedTo(s, name, "release") != nil {
			continue
		}
		if (!s.live(r) || s.has("purge deletes live leases")) && (len(ended) < limit || s.has("purge ignores its limit")) {
			ended = append(ended, name)
		}
	}
	if s.has("purge reads, then deletes") {
		s.pause()
	}
	for _, name := range ended {
		delete(s.rows, name)
	}
	return len(ended), nil
}

func (s *faulty) ForceRelease(ctx context.Context, resource string, token int64) (locks.Lock, error) {
	if err := s.begin(ctx, errors.Join(locks.ValidateResource(resource), locks.ValidateToken(token))); err != nil {
		return locks.Lock{}, err
	}
	s.enter()
	defer s.mu.Unlock()
	r := s.rows[s.fold(resource)]
	if r == nil || !s.live(r) && !s.has("force release ends what has ended") {
		return locks.Lock{}, locks.ErrNotFound
	}
	if r.isGroup() && (r.lock.Token != token || s.has("shares alone can be forced")) && !s.has("force release ignores the token") {
		return s.forceReleaseShare(resource, token)
	}
	if r.lock.Token != token && !s.has("force release ignores the token") {
		return locks.Lock{}, &locks.LostError{Grant: locks.Grant{Resource: resource, Token: token}, Reason: locks.ErrSuperseded}
	}
	if s.has("force release reads, then deletes") {
		s.pause()
	}
	if err := s.lockedTo(s, s.fold(resource), "force release"); err != nil {
		return locks.Lock{}, err
	}
	l := s.record(r)
	s.remove(resource)
	s.freed(resource, "a forced release")
	if s.has("force release returns nothing") {
		return locks.Lock{}, nil
	}
	return l, nil
}
