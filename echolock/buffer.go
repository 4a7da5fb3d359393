package echolock

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"time"
)

// ErrResponseTooLarge is the cause of the answer to a request whose handler, under [Config.Tx], wrote a body above
// [Config.ResponseLimit]; the writes above it fail with it too. The transaction was rolled back.
var ErrResponseTooLarge = errors.New("echolock: the answer is larger than ResponseLimit")

// errBuffered is not http.ErrNotSupported: that makes a panic of echo's Response.Flush.
var errBuffered = errors.New("echolock: nothing can be flushed while the transaction is open")

// answerBuffer is a handler's response writer while its transaction is open: it keeps the answer. Once passed on or taken
// back it lets everything through, since it may stay behind in an echo.Context that is not ours to mend.
//
// There is no Unwrap: whoever got to the host's writer would answer before the commit.
type answerBuffer struct {
	outside http.ResponseWriter
	limit   int64
	before  http.Header // the answer's headers before the handler

	status int // 0 while there is no answer
	body   []byte
	tooBig bool
	over   bool
}

func newAnswerBuffer(outside http.ResponseWriter, limit int64) *answerBuffer {
	return &answerBuffer{outside: outside, limit: limit, before: outside.Header().Clone()}
}

// Header implements [http.ResponseWriter].
func (b *answerBuffer) Header() http.Header { return b.outside.Header() }

// WriteHeader implements [http.ResponseWriter]. Informational answers are dropped: they would go before the commit.
func (b *answerBuffer) WriteHeader(status int) {
	switch {
	case b.over:
		b.outside.WriteHeader(status)
	case status < 100 || status > 999: // as net/http would, but after the commit
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	case b.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols):
		b.status = status
	}
}

// Write implements [http.ResponseWriter].
func (b *answerBuffer) Write(body []byte) (int, error) {
	if b.over {
		return b.outside.Write(body)
	}
	b.WriteHeader(http.StatusOK)
	switch {
	case b.status < 200 || b.status == http.StatusNoContent || b.status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case b.tooBig || int64(len(body)) > b.limit-int64(len(b.body)):
		b.tooBig, b.body = true, nil
		return 0, fmt.Errorf("%w, %d bytes", ErrResponseTooLarge, b.limit)
	}
	b.body = append(b.body, body...)
	return len(body), nil
}

// answered tells whether the handler has written an answer.
func (b *answerBuffer) answered() bool { return b.status != 0 }

// refused tells an answer that says of itself that the work was not done.
func (b *answerBuffer) refused() bool { return b.status >= http.StatusBadRequest && !b.tooBig }

// pass gives the answer to the client.
func (b *answerBuffer) pass() error {
	b.over = true
	if !b.answered() {
		return nil
	}
	b.outside.WriteHeader(b.status)
	if len(b.body) == 0 {
		return nil
	}
	if _, err := b.outside.Write(b.body); err != nil {
		return fmt.Errorf("echolock: the answer could not be sent: %w", err)
	}
	return nil
}

// drop forgets the answer, and the headers that the handler gave it.
func (b *answerBuffer) drop() {
	b.over, b.status, b.body = true, 0, nil
	header := b.outside.Header()
	clear(header)
	maps.Copy(header, b.before)
}

// Hijack is refused: on the connection itself the handler would answer before the commit.
func (b *answerBuffer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, fmt.Errorf("echolock: no hijack under a transaction: %w", http.ErrNotSupported)
}

// FlushError is what [http.ResponseController] calls.
func (b *answerBuffer) FlushError() error {
	if b.over {
		return b.controller().Flush()
	}
	return errBuffered
}

// Flush implements [http.Flusher]; while the transaction is open it does nothing.
func (b *answerBuffer) Flush() { _ = b.FlushError() }

// SetReadDeadline is for [http.ResponseController], as the next two are.
func (b *answerBuffer) SetReadDeadline(deadline time.Time) error {
	return b.controller().SetReadDeadline(deadline)
}

// SetWriteDeadline is for [http.ResponseController].
func (b *answerBuffer) SetWriteDeadline(deadline time.Time) error {
	return b.controller().SetWriteDeadline(deadline)
}

// EnableFullDuplex is for [http.ResponseController].
func (b *answerBuffer) EnableFullDuplex() error { return b.controller().EnableFullDuplex() }

func (b *answerBuffer) controller() *http.ResponseController {
	return http.NewResponseController(b.outside)
}
