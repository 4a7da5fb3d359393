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
	channel string        // where this process hears of turns, "" without a waker
	changed chan struct{} // holds one element when the goroutine of run.go shall look at its times anew
	line    chan struct{} // holds one element while a connection is open, also one that does not end when it should

	mu      sync.Mutex
	places  map[int64]*place  // by ticket
	queues  map[string]*queue // by resource
	running bool              // the goroutine of run.go is there
	wakeAt  time.Time         // when it looks at its times anyway
	ear     *ear              // nil while no connection is wanted
	dial    dialing
}

// queue is the places of this process in one resource's queue.
type queue struct {
	resource string
	places   []*place      // in the order of their tickets, never empty
	lookAt   time.Time     // when the first one is to be looked at
	pause    time.Duration // after the next look
	hurried  bool          // the last pause was shorter than MinPoll, since something was to end
}

// NewFront returns a front of this configuration. Nothing runs before somebody waits. Errors: [locks.ErrInvalid].
func NewFront(config Config) (*Front, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	f := &Front{config: config, changed: make(chan struct{}, 1), line: make(chan struct{}, 1)}
	f.emptyLocked()
	if config.Waker != nil {
		f.channel = "rowlease_" + strings.ToLower(rand.Text())
	}
	return f, nil
}

// emptyLocked makes the maps anew, since a map keeps the room of what it once had.
func (f *Front) emptyLocked() {
	f.places, f.queues = make(map[int64]*place), make(map[string]*queue)
}

// Channel is where this process hears of turns, "" without a waker: a store that grants or frees need not announce there
// what it tells the front with [Front.Wake].
func (f *Front) Channel() string { return f.channel }

// Enqueue is [locks.Queuer]'s. The request must be valid. When it fails and the ticket may have been drawn all the same, it
// takes the ticket back before it returns, also after ctx has ended: that takes as long as CallLimit at most. One that
// cannot be taken back ends by time, and so does one whose call comes back after that.
func (f *Front) Enqueue(ctx context.Context, request locks.Request, most int) (locks.Place, error) {
	if err := ctx.Err(); err != nil { // nothing is sent, so there is nothing to take back
		return nil, err
	}
	waiter, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) (locks.Waiter, error) {
		return f.config.Backend.Enqueue(ctx, request, f.config.TTL, f.channel, most)
	}, func(_ locks.Waiter, err error) {
		if err == nil {
			f.undo(ctx, request) // drawn after all, for nobody
		}
	})
	if err != nil {
		if !isAnswer(err) {
			f.undo(ctx, request)
		}
		return nil, err
	}
	return f.join(waiter, request), nil
}

// undo takes out of the queue what a lost answer may have left there, unless the same attempt waits here as well: its
// ticket is that. It tries once: a ticket that stays ends by time.
func (f *Front) undo(ctx context.Context, request locks.Request) {
	if !f.waits(request) {
		_ = f.dequeue(context.WithoutCancel(ctx), request)
	}
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
