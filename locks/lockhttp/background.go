package lockhttp

import (
	"context"
	"sync"
)

// background counts what outlives its request, and requests that wait.
type background struct {
	most    int           // how many of start may run
	closing chan struct{} // closed by close
	mu      sync.Mutex
	started int           // by start
	running int           // all of them
	idle    chan struct{} // closed when running falls to 0; nil while nobody waits
}

// start runs fn and reports whether it does: not when too many run already. It does when closed: what is lost then has to
// be given back all the same.
func (b *background) start(fn func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started >= b.most {
		return false
	}
	b.started++
	b.running++
	go func() {
		defer b.done()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.started--
		}()
		fn()
	}()
	return true
}

// run is start for what there cannot be too much of, since each takes the place of a request that waited.
func (b *background) run(fn func()) {
	b.begin()
	go func() {
		defer b.done()
		fn()
	}()
}

// begin counts something that runs until done.
func (b *background) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running++
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

func (b *background) isClosed() bool {
	select {
	case <-b.closing:
		return true
	default:
		return false
	}
}

// close tells what runs to hurry, and waits for it.
func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	if !b.isClosed() {
		close(b.closing)
	}
	if b.running == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
