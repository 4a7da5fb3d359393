package echolock

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of [Config.ExposeHeaders]. A browser's script sees them only if the host's CORS exposes them.
const (
	// HeaderKey is the request's key, percent-encoded where it is not visible ASCII.
	HeaderKey = "Lease-Key"
	// HeaderToken is the fencing token of the lease that the handler ran under.
	HeaderToken = "Lease-Token"
	// HeaderWaited is how long the request waited for its lease or its refusal, in milliseconds.
	HeaderWaited = "Lease-Waited-Ms"
)

// expose adds the headers. A token of 0 is none.
func expose(header http.Header, key string, token int64, waited time.Duration) {
	header.Set(HeaderKey, visible(key))
	header.Set(HeaderWaited, strconv.FormatInt(waited.Milliseconds(), 10))
	if token > 0 {
		header.Set(HeaderToken, strconv.FormatInt(token, 10))
	}
}

// visible percent-encodes what a header could not carry as it is.
func visible(key string) string {
	const digits = "0123456789ABCDEF"
	plain := func(b byte) bool { return b > ' ' && b < 0x7f && b != '%' }
	var text strings.Builder
	for i := range len(key) {
		if b := key[i]; plain(b) {
			text.WriteByte(b)
		} else {
			text.Write([]byte{'%', digits[b>>4], digits[b&15]})
		}
	}
	return text.String()
}
