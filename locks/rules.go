package locks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits that hold for every store.
const (
	// MaxResourceBytes is the longest resource name.
	MaxResourceBytes = 512
	// MaxOwnerBytes is the longest owner.
	MaxOwnerBytes = 255
	// MaxAttemptBytes is the longest attempt.
	MaxAttemptBytes = 255
	// MaxMetadataBytes is the largest metadata object, as JSON text.
	MaxMetadataBytes = 4096
	// MinTTL is the shortest lease.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the longest lease.
	MaxTTL = 24 * time.Hour
)

// ValidateResource reports, as an [*InvalidError], why the name cannot be guarded: a resource is 1 to 512 bytes of
// valid UTF-8 without control characters. Nothing is normalised: case, blanks and composition tell names apart, on
// every store alike.
func ValidateResource(resource string) error {
	return validateName("resource", resource, MaxResourceBytes)
}

// ValidateOwner reports, as an [*InvalidError], why the owner is refused: as a resource, but at most 255 bytes.
func ValidateOwner(owner string) error {
	return validateName("owner", owner, MaxOwnerBytes)
}

// ValidateToken reports, as an [*InvalidError], a number that no grant can have: tokens are 1 to 2^53 − 1.
func ValidateToken(token int64) error {
	if token < 1 || token > maxToken {
		return &InvalidError{Field: "token", Reason: fmt.Sprintf("must be from 1 to %d, got %d", int64(maxToken), token)}
	}
	return nil
}

// ValidateTTL reports, as an [*InvalidError], a lease that is too short ([MinTTL]) or too long ([MaxTTL]).
func ValidateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &InvalidError{Field: "ttl", Reason: fmt.Sprintf("must be from %v to %v, got %v", MinTTL, MaxTTL, ttl)}
	}
	return nil
}

// ValidateMetadata reports, as an [*InvalidError], what cannot be kept with a lease: metadata is nil or one JSON
// object of at most 4,096 bytes in valid UTF-8. The text is kept as it is given.
func ValidateMetadata(metadata json.RawMessage) error {
	switch {
	case metadata == nil:
		return nil
	case len(metadata) > MaxMetadataBytes:
		return &InvalidError{Field: "metadata", Reason: fmt.Sprintf("must be at most %d bytes, got %d", MaxMetadataBytes, len(metadata))}
	case !utf8.Valid(metadata):
		return &InvalidError{Field: "metadata", Reason: "must be valid UTF-8"}
	case !json.Valid(metadata) || !bytes.HasPrefix(bytes.TrimLeft(metadata, " \t\r\n"), []byte("{")):
		return &InvalidError{Field: "metadata", Reason: "must be one JSON object"}
	}
	return nil
}

func validateLimit(limit, most int) error {
	if limit < 1 || limit > most {
		return &InvalidError{Field: "limit", Reason: fmt.Sprintf("must be from 1 to %d, got %d", most, limit)}
	}
	return nil
}

func validateName(field, name string, limit int) error {
	switch {
	case name == "":
		return &InvalidError{Field: field, Reason: "must not be empty"}
	case len(name) > limit:
		return &InvalidError{Field: field, Reason: fmt.Sprintf("must be at most %d bytes, got %d", limit, len(name))}
	case !utf8.ValidString(name):
		return &InvalidError{Field: field, Reason: "must be valid UTF-8"}
	}
	for i, r := range name {
		if unicode.IsControl(r) {
			return &InvalidError{Field: field, Reason: fmt.Sprintf("must not have control characters, got %U at byte %d", r, i)}
		}
	}
	return nil
}
