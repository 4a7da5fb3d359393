package waitqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/internal/call"
)

// Front is what one process has of a queue: see the package. It is safe for concurrent use. A store has one.
type Front struct {
	config  Config
	channel string // where this process hears of turns, "" without a waker

	mu      sync.Mutex
	places  map[int64]*place // by ticket
	lines   map[string]*line // by resource
	running bool             // a goroutine keeps and looks: see run.go
	changed chan struct{}    // holds one element when that goroutine shall look at its times anew
	ear     ear              // see listen.go
}

// line is the places of this process in one resource's queue.
type line struct {
	resource string
	places   []*place      // in the order of their tickets
	lookAt   time.Time     // when the first one is to be looked at
	pause    time.Duration // after the next look
}

// NewFront returns a front of this configuration. Nothing runs before somebody waits. Errors: [locks.ErrInvalid].
func NewFront(config Config) (*Front, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	f := &Front{
		config:  config,
		places:  make(map[int64]*place),
		lines:   make(map[string]*line),
		changed: make(chan struct{}, 1),
	}
	if config.Waker != nil {
		f.channel = "rowlease_" + strings.ToLower(rand.Text())
	}
	return f, nil
}

// Channel is where this process hears of turns, "" without a waker: a store that grants or frees need not announce there
// what it tells the front with [Front.Wake].
func (f *Front) Channel() string { return f.channel }

// Enqueue is [locks.Queuer]'s. The request must be valid.
func (f *Front) Enqueue(ctx context.Context, request locks.Request, most int) (locks.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, f.config.CallLimit) // for engines that heed it; call.Do is for the others
	defer cancel()
	asked := time.Now()
	undo := func() { f.undo(ctx, request) }
	waiter, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) (locks.Waiter, error) {
		return f.config.Backend.Enqueue(ctx, request, f.config.TTL, f.channel, most)
	}, func(_ locks.Waiter, err error) {
		if err == nil {
			undo() // drawn after all, for nobody
		}
	})
	if err != nil {
		if !isAnswer(err) {
			go undo()
		}
		return nil, err
	}
	return f.join(waiter, request, asked), nil
}

// undo takes out of the queue what a lost answer may have left there. It tries once: a ticket that stays ends by time.
func (f *Front) undo(ctx context.Context, request locks.Request) {
	_ = f.dequeue(context.WithoutCancel(ctx), request)
}

func (f *Front) dequeue(ctx context.Context, request locks.Request) error {
	next, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) (int64, error) {
		return f.config.Backend.Dequeue(ctx, request.Resource, request.Owner, request.Attempt)
	}, func(next int64, err error) {
		if err == nil {
			f.Wake(next)
		}
	})
	if err == nil {
		f.Wake(next)
	}
	return err
}

// isAnswer reports whether the backend said what is the case, so that nothing is unknown.
func isAnswer(err error) bool {
	for _, answer := range []error{locks.ErrQueueFull, locks.ErrRetryable, locks.ErrInvalid} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// Wake tells the one who waits with this ticket, if it is here, that it may be its turn: for stores that are told of
// it by a statement that frees a resource. A number of nobody's here, 0 too, does nothing.
func (f *Front) Wake(ticket int64) {
	f.mu.Lock()
	p := f.places[ticket]
	f.mu.Unlock()
	if p != nil {
		p.signal()
	}
}
