package lockhttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// answer writes a success as JSON.
func answer(w http.ResponseWriter, r *http.Request, status int, value any) error {
	body, err := encode(value)
	if err != nil {
		return err
	}
	setCommon(w.Header(), "application/json")
	return send(w, r, status, body)
}

// answerAtOnce is answer for what the client must learn of: it sends what it wrote, since a small answer would else wait
// in a buffer that takes everything, and fails only after the handler has returned. Without an error the answer has
// left as far as anybody can tell. The request's context says nothing more from here on: it also ends when a client
// hangs up because it has what it wanted.
func answerAtOnce(w http.ResponseWriter, r *http.Request, status int, value any) error {
	body, err := encode(value)
	if err != nil {
		return err
	}
	setCommon(w.Header(), "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // a flush would make it chunked
	if err := send(w, r, status, body); err != nil {
		return err
	}
	err = http.NewResponseController(w).Flush()
	if err != nil && !errors.Is(err, http.ErrNotSupported) { // what buffers on purpose, a timeout's writer say, cannot tell
		return fmt.Errorf("answer not sent: %w", err)
	}
	return nil
}

func setCommon(header http.Header, contentType string) {
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
}

// send writes status and body. A HEAD has no body, and the length that the GET's would have.
func send(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(status)
		return nil
	}
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("answer not written: %w", err)
	}
	return nil
}

// encode is json.Marshal that leaves <, > and & as they are, with a line end for terminals.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return buffer.Bytes(), nil
}

// instant has a fixed width, so that texts sort as the instants do.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

var null = json.RawMessage("null")

// metadataOf is the metadata as it can stand in an answer. Rows that somebody wrote by hand cannot break it.
func metadataOf(metadata json.RawMessage) json.RawMessage {
	if len(metadata) == 0 || !json.Valid(metadata) {
		return null
	}
	return metadata
}

// record is a lease in an answer.
type record struct {
	ID         int64           `json:"id,omitempty"`
	Resource   string          `json:"resource"`
	Owner      string          `json:"owner,omitempty"`
	Token      int64           `json:"token,omitempty"`
	Shared     bool            `json:"shared,omitempty"`
	Slots      int             `json:"slots,omitempty"`
	AcquiredAt string          `json:"acquired_at"`
	ExpiresAt  string          `json:"expires_at"`
	TTLSeconds int             `json:"ttl_seconds"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
}

// redacted is the lease for everybody: owner, token and metadata are not there at all, and neither is the id, which a
// store may count up together with the tokens, so that one gives the other away. How it is shared is no secret.
func redacted(lock locks.Lock) record {
	shared, slots := sharing(lock.Slots)
	return record{
		Resource: lock.Resource, Shared: shared, Slots: slots, AcquiredAt: instant(lock.AcquiredAt), ExpiresAt: instant(lock.ExpiresAt),
		TTLSeconds: wholeSeconds(lock.Remaining),
	}
}

// complete is the lease for its owner and for operators: all eight members, metadata null where there is none, and no owner
// where it is a group's.
func complete(lock locks.Lock) record {
	all := redacted(lock)
	all.ID, all.Owner, all.Token, all.Metadata = lock.ID, lock.Owner, lock.Token, metadataOf(lock.Metadata)
	return all
}

// one is the answer with one lease.
type one struct {
	Lock record `json:"lock"`
}
