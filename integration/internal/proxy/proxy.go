// Package proxy stands between a client and a server and does to their bytes what networks do.
package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy passes connections on to one address.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	conns   map[net.Conn]struct{}
	closed  bool
	// held directions keep their bytes until they flow again: nothing is closed and nothing arrives.
	holdRequests, holdReplies bool

	trips    int  // round trips that have begun
	answered bool // a reply was the last to pass
}

// Start runs a proxy to the target until the test ends.
func Start(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens until the test ends
	if err != nil {
		tb.Fatalf("proxy: %v", err)
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	go p.accept()
	tb.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		listener.Close() //nolint:errcheck // the test is over
		p.Cut()
	})
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// HoldRequests keeps what clients send, HoldReplies what the server answers; with both it is a black hole. Hold false
// lets the bytes go on.
func (p *Proxy) HoldRequests(hold bool) { p.set(func() { p.holdRequests = hold }) }

// HoldReplies is described at HoldRequests.
func (p *Proxy) HoldReplies(hold bool) { p.set(func() { p.holdReplies = hold }) }

// Trips is how many round trips have begun: how often a request came first, or after a reply.
func (p *Proxy) Trips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Cut closes every connection. What is held is lost.
func (p *Proxy) Cut() {
	p.set(func() {
		for conn := range p.conns {
			conn.Close() //nolint:errcheck // that is the point
		}
		clear(p.conns)
	})
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		server, err := net.Dial("tcp", p.target) //nolint:noctx // the target is this machine
		if err != nil {
			client.Close() //nolint:errcheck // the client sees it
			continue
		}
		p.set(func() { p.conns[client], p.conns[server] = struct{}{}, struct{}{} })
		go p.pipe(server, client, &p.holdRequests)
		go p.pipe(client, server, &p.holdReplies)
	}
}

// pipe passes bytes on, and the end of the connection when all of them have gone: a client that gave up does not undo
// the request that is on its way.
func (p *Proxy) pipe(to, from net.Conn, hold *bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for *hold && !p.closed {
			p.changed.Wait()
		}
		if request := hold == &p.holdRequests; n > 0 && request && (p.answered || p.trips == 0) {
			p.trips++
			p.answered = false
		} else if n > 0 && !request {
			p.answered = true
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				from.Close() //nolint:errcheck // the other end is gone
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				if half, ok := to.(*net.TCPConn); ok {
					half.CloseWrite() //nolint:errcheck // as the sender did
					return
				}
			}
			to.Close() //nolint:errcheck // the other end is gone
			return
		}
	}
}
