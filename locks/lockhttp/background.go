package lockhttp

import (
	"context"
	"sync"
)

// background counts goroutines that outlive their request.
type background struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when running falls to 0; nil while nobody waits
}

// start runs fn, also when closed: what is lost then has to be given back all the same.
func (b *background) start(fn func()) {
	b.mu.Lock()
	b.running++
	b.mu.Unlock()
	go func() {
		defer b.done()
		fn()
	}()
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
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
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
