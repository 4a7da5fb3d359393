package echolock

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
)

// guardedWriter is the handler's response writer. It learns of a hijack, after which there is nobody to answer to: that a
// client asked for an upgrade does not say that it got one.
type guardedWriter struct {
	http.ResponseWriter
	hijacked atomic.Bool
}

// Unwrap is for [http.ResponseController].
func (w *guardedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w *guardedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked.Store(true)
	}
	return conn, buffer, err
}

// FlushError is what [http.ResponseController] calls.
func (w *guardedWriter) FlushError() error {
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (w *guardedWriter) Flush() { _ = w.FlushError() }
