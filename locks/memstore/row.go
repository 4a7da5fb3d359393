package memstore

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// row is a lease as it is kept. It is never changed but replaced, since an open transaction may keep another version of
// it. Its times have the monotonic reading; those of a [locks.Lock] do not.
type row struct {
	id         int64
	resource   string
	owner      string // "" for a group of those who share it
	attempt    string
	token      int64
	acquiredAt time.Time
	expiresAt  time.Time
	metadata   json.RawMessage
	slots      int   // of a group, and of its shares
	group      int64 // of a share: the token of its group
}

func (r *row) isGroup() bool { return r != nil && r.owner == "" }

// live reports whether there is a row and its lease is unexpired. Expired means gone: now >= expiresAt.
func (r *row) live(now time.Time) bool { return r != nil && now.Before(r.expiresAt) }

// refuse says why the grant is not current, or nil.
func (r *row) refuse(grant locks.Grant, now time.Time) error {
	if r == nil {
		return locks.Refuse(grant, nil, false)
	}
	current := r.lock(now)
	return locks.Refuse(grant, &current, r.live(now))
}

// lock returns a record that shares no memory with the row.
func (r *row) lock(now time.Time) locks.Lock {
	return locks.Lock{
		ID:         r.id,
		Resource:   r.resource,
		Owner:      r.owner,
		Slots:      r.slots,
		Token:      r.token,
		AcquiredAt: r.acquiredAt.UTC(), // UTC drops the monotonic reading
		ExpiresAt:  r.expiresAt.UTC(),
		Remaining:  r.expiresAt.Sub(now),
		Metadata:   bytes.Clone(r.metadata),
	}
}
