package lockstest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// faultyQueue is who waits for a faulty store's resources. The store's mutex protects it. Nobody looks: whoever is to be told
// is told by what makes it its turn.
type faultyQueue struct {
	tickets []*faultyTicket // of all resources, in the order of their numbers
	numbers int64
	signals int
}

type faultyTicket struct {
	waiter  locks.Waiter
	key     string // of the resource, and the owner and the attempt as they are compared
	owner   string
	attempt string
	dead    bool
	places  []*faultyPlace
}

type faultyPlace struct {
	s    *faulty
	t    *faultyTicket
	turn chan struct{}
}

// queued is the name of a resource's queue.
func (s *faulty) queued(resource string) string {
	if s.has("one queue for all resources") {
		return ""
	}
	return s.fold(resource)
}

// line is a resource's live tickets.
func (s *faulty) line(resource string) []*faultyTicket {
	var line []*faultyTicket
	for _, t := range s.tickets {
		if t.key == s.queued(resource) && (!t.dead || s.has("dead tickets block the queue")) {
			line = append(line, t)
		}
	}
	return line
}

func (s *faulty) first(resource string) *faultyTicket {
	line := s.line(resource)
	switch {
	case len(line) == 0:
		return nil
	case s.has("the last one is the first"):
		return line[len(line)-1]
	}
	return line[0]
}

func (s *faulty) owns(t *faultyTicket, owner, attempt string) bool {
	sameOwner, sameAttempt := t.owner == s.fold(owner), t.attempt == s.fold(attempt)
	return (sameOwner || s.has("a ticket is its attempt's only")) && (sameAttempt || s.has("a ticket is its owner's only"))
}

// ticket is the live one of the request's attempt.
func (s *faulty) ticket(q locks.Request) *faultyTicket {
	for _, t := range s.line(q.Resource) {
		if s.owns(t, q.Owner, q.Attempt) {
			return t
		}
	}
	return nil
}

// othersTurn refuses what somebody else waits for.
func (s *faulty) othersTurn(q locks.Request, in place, r *faultyRow, live bool) error {
	first := s.first(q.Resource)
	t, _ := in.(*faultyTx)
	switch {
	case first == nil, s.owns(first, q.Owner, q.Attempt), s.has("a try overtakes") && t == nil:
		return nil
	case t != nil && s.has("a transaction overtakes") && slices.Contains(s.txs, t.root):
		return nil
	case t != nil && s.has("many overtake") && !slices.Contains(s.txs, t.root):
		return nil
	case live && !s.has("waiters keep the holder out"):
		return nil
	case q.Barge && !s.has("nobody barges"), s.has("an ended holder overtakes") && r != nil && r.lock.Owner == q.Owner:
		return nil
	case s.has("a dead ticket is served") && slices.ContainsFunc(s.tickets, func(t *faultyTicket) bool { return t.dead && s.owns(t, q.Owner, q.Attempt) }):
		return nil
	case s.has("the first one is told for the holder"):
		return locks.Held(q.Resource, &locks.Lock{Resource: q.Resource, Owner: first.waiter.Owner})
	}
	return locks.Held(q.Resource, nil)
}

// serve takes the ticket of what was granted out, in a transaction with its commit.
func (s *faulty) serve(q locks.Request, in place) {
	t, inTx := in.(*faultyTx)
	switch {
	case s.has("tickets outlive their grant"), q.Barge && s.has("who barges keeps its ticket"):
	case inTx && s.has("many leave their tickets") && !slices.Contains(s.txs, t.root):
	case inTx && !s.has("a ticket goes before the commit"):
		t.root.served = append(t.root.served, q)
	default:
		s.takeOut(q)
	}
}

// found is for a grant that its attempt has already.
func (s *faulty) found(q locks.Request) {
	if !s.has("what is found again leaves its ticket") {
		s.takeOut(q)
	}
}

func (s *faulty) takeOut(q locks.Request) {
	s.tickets = slices.DeleteFunc(s.tickets, func(t *faultyTicket) bool { return t.key == s.queued(q.Resource) && s.owns(t, q.Owner, q.Attempt) })
}

// freed tells the first one that the resource may be free, for a reason.
func (s *faulty) freed(resource, reason string) {
	s.now = time.Now()
	r := s.rows[s.fold(resource)]
	room := !s.live(r) || r.isGroup() && !s.has(reason+" tells who waits for all only")
	if !s.has(reason+" tells nobody") && room {
		s.signals++
		if s.signals%20 != 19 || !s.has("now and then a wake-up is lost") {
			s.first(resource).signal()
		}
	}
}

func (t *faultyTicket) signal() {
	if t == nil {
		return
	}
	for _, p := range t.places {
		select {
		case p.turn <- struct{}{}:
		default:
		}
	}
}

func (s *faulty) expireTicket(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.waiter.Number == number {
			t.dead = true
			t.signal()
			s.freed(t.waiter.Resource, "the end of a ticket")
		}
	}
}

func (s *faulty) Enqueue(ctx context.Context, q locks.Request, most int) (locks.Place, error) {
	if err := s.begin(ctx, q.Validate()); err != nil {
		return nil, err
	}
	s.enter()
	defer s.mu.Unlock()
	t := s.ticket(q)
	if t == nil || s.has("each enqueue draws a ticket") {
		var err error
		if t, err = s.drawTicket(q, most); err != nil {
			return nil, err
		}
	}
	if s.has("what is given up stays in the queue") {
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		s.enter()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	p := &faultyPlace{s: s, t: t, turn: make(chan struct{}, 1)}
	t.places = append(t.places, p)
	s.freed(q.Resource, "coming")
	if s.has("enqueueing grants what is free") && !s.live(s.rows[s.fold(q.Resource)]) {
		_, _ = s.acquire(q, s)
	}
	return p, nil
}

func (s *faulty) drawTicket(q locks.Request, most int) (*faultyTicket, error) {
	old := slices.IndexFunc(s.tickets, func(t *faultyTicket) bool {
		return t.dead && t.key == s.queued(q.Resource) && s.owns(t, q.Owner, q.Attempt)
	})
	if old >= 0 && s.has("a dead ticket is revived") {
		s.tickets[old].dead = false
		return s.tickets[old], nil
	}
	line := s.line(q.Resource)
	waiting := len(line)
	if s.has("most counts everybody") {
		waiting = len(s.tickets)
	}
	full := most > 0 && waiting >= most
	if s.has("most is looked at, then a ticket is drawn") {
		s.pause()
	}
	if full && s.has("a full queue is told as held") {
		return nil, locks.Held(q.Resource, nil)
	}
	if full && !s.has("who is refused a place stays") && !s.has("most is not looked at") {
		return nil, locks.ErrQueueFull
	}
	s.numbers++
	number := s.numbers
	if s.has("numbers are places") {
		number = int64(len(line)) + 1
	}
	if s.has("numbers are drawn, then seen") {
		s.pause()
	}
	t := &faultyTicket{key: s.queued(q.Resource), owner: s.fold(q.Owner), attempt: s.fold(q.Attempt)}
	t.waiter = locks.Waiter{Resource: q.Resource, Owner: q.Owner, Number: number, Since: s.now.UTC(), ExpiresAt: s.now.UTC().Add(15 * time.Second)}
	s.tickets = append(slices.DeleteFunc(s.tickets, func(t *faultyTicket) bool { return t.dead && s.owns(t, q.Owner, q.Attempt) }), t)
	slices.SortStableFunc(s.tickets, func(t, u *faultyTicket) int { return int(t.waiter.Number - u.waiter.Number) })
	if full {
		return nil, locks.ErrQueueFull
	}
	return t, nil
}

func (s *faulty) Waiters(ctx context.Context, resource string, limit int) (locks.Queue, error) {
	if err := s.begin(ctx, locks.ValidateWaiters(resource, limit)); err != nil {
		return locks.Queue{}, err
	}
	s.enter()
	defer s.mu.Unlock()
	line := s.line(resource)
	queue := locks.Queue{Waiting: len(line)}
	if s.has("no limit is all") && limit == 0 {
		limit = math.MaxInt
	}
	for _, t := range line[:min(len(line), max(limit, 0))] {
		w := t.waiter
		if s.has("times are local") {
			w.Since = w.Since.In(time.FixedZone("", 3600))
		}
		queue.Waiters = append(queue.Waiters, w)
	}
	if s.has("waiters are counted to the limit") {
		queue.Waiting = len(queue.Waiters)
	}
	if s.has("the last ones are listed") && limit < len(line) {
		for i := range queue.Waiters {
			queue.Waiters[i] = line[len(line)-len(queue.Waiters)+i].waiter
		}
	}
	return queue, nil
}

func (p *faultyPlace) Waiter() locks.Waiter  { return p.t.waiter }
func (p *faultyPlace) Turn() <-chan struct{} { return p.turn }
func (p *faultyPlace) Served()               {}

func (p *faultyPlace) Lapsed() bool {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return p.t.dead && !p.s.has("nobody is told that its ticket has ended")
}

func (p *faultyPlace) Leave(context.Context) error {
	s, t := p.s, p.t
	s.enter()
	defer s.mu.Unlock()
	at := slices.Index(s.tickets, t)
	switch {
	case t.dead: // it has ended by itself
	case at >= 0 && !s.has("who leaves stays in the queue"):
		s.tickets = slices.Delete(s.tickets, at, at+1)
	case at < 0 && s.has("leaving ends the grant"):
		if r := s.rows[t.key]; r != nil && r.attempt == t.attempt {
			delete(s.rows, t.key)
		}
	case at < 0 && s.has("who leaves twice is missed"):
		return errors.New("no such ticket")
	case at < 0 && s.has("who leaves takes the first ticket out"):
		if first := s.first(t.waiter.Resource); first != nil {
			s.takeOut(locks.Request{Resource: t.waiter.Resource, Owner: first.waiter.Owner, Attempt: first.attempt})
		}
	}
	s.freed(t.waiter.Resource, "leaving")
	return nil
}
