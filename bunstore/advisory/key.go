package advisory

import (
	"crypto/sha256"
	"encoding/binary"
)

// keyDomain keeps the keys of this package apart from what else is made of the same names. Frozen: two releases must
// agree on a key while both run.
const keyDomain = "rowlease/advisory:"

// KeyOf returns the key that PostgreSQL knows a name by: the first 8 bytes, big endian, of the SHA-256 of
// "rowlease/advisory:" and the name. It is the same in every process and every release, so that another program can
// take the same lock with pg_advisory_lock(key); in pg_locks its upper half is classid, its lower half objid, and
// objsubid is 1.
//
// The key shares PostgreSQL's one space of 64-bit advisory locks with the leases' gates, other libraries and the
// application itself. Two given names have the same key by a chance of 2^-64; they then exclude each other, and never
// do both hold. That is also the chance for a name and a lease's gate.
func KeyOf(name string) int64 {
	sum := sha256.Sum256([]byte(keyDomain + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
