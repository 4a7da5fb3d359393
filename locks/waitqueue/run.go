package waitqueue

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// linger is how long a front that has a waker goes on after the last of its waiters, so that a process which waits
// again and again does not open a connection each time.
const linger = time.Second

// maxLook is how many tickets one statement looks at.
const maxLook = 500

// startLocked starts the goroutine unless it runs.
func (f *Front) startLocked() {
	if !f.running {
		f.running = true
		go f.run()
	}
}

// run keeps the tickets and looks whose turn it is, until nobody waits.
func (f *Front) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if f.config.Waker != nil {
		stop := f.listen(ctx)
		defer stop()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	keepAt := time.Now().Add(f.config.TTL / 3)
	for {
		wait, more := f.rest(keepAt)
		if !more {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-f.changed:
		}
		now := time.Now()
		if !now.Before(keepAt) {
			keepAt = now.Add(f.config.TTL / 3)
			if !f.keep(ctx) {
				keepAt = now.Add(min(f.config.MaxPoll, f.config.TTL/3)) // the sooner, the more of them are saved
			}
		}
		f.look(ctx)
	}
}

// rest returns how long the goroutine has nothing to do, and whether it is to go on at all.
func (f *Front) rest(keepAt time.Time) (wait time.Duration, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if len(f.places) == 0 {
		if f.ear.idleSince.IsZero() {
			f.ear.idleSince = now
		}
		if left := linger - now.Sub(f.ear.idleSince); f.config.Waker != nil && left > 0 {
			return left, true
		}
		f.ear = ear{}
		f.running = false
		return 0, false
	}
	f.ear.idleSince = time.Time{}
	next := keepAt
	for _, l := range f.lines {
		if l.lookAt.Before(next) {
			next = l.lookAt
		}
	}
	return max(0, next.Sub(now)), true
}

// keep gives the tickets their time again, and reports whether that could be done.
func (f *Front) keep(ctx context.Context) bool {
	began := time.Now()
	f.mu.Lock()
	tickets := make([]int64, 0, len(f.places))
	for number := range f.places {
		tickets = append(tickets, number)
	}
	f.mu.Unlock()
	if len(tickets) == 0 {
		return true
	}
	kept, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) ([]int64, error) {
		return f.config.Backend.Keep(ctx, tickets, f.config.TTL, f.channel)
	}, nil)
	if err != nil {
		f.config.Logger.Debug("waitqueue: tickets not kept", "error", err)
		return false
	}
	alive := make(map[int64]struct{}, len(kept))
	for _, number := range kept {
		alive[number] = struct{}{}
	}
	for _, number := range tickets {
		if _, ok := alive[number]; !ok {
			f.lapse(number, began)
		}
	}
	f.checkEar(ctx)
	return true
}

// lapse ends the place of a ticket that is not live any more: expired, or taken out by its grant, of which the waiter
// hears by itself.
func (f *Front) lapse(number int64, asked time.Time) {
	f.mu.Lock()
	p := f.places[number]
	f.mu.Unlock()
	if p == nil || p.drawn.After(asked) {
		return
	}
	p.lapsed.Store(true)
	f.part(p)
	p.signal()
}

// look looks at the first place of each line whose time has come.
func (f *Front) look(ctx context.Context) {
	began := time.Now()
	f.mu.Lock()
	var due []Ticket
	for _, l := range f.lines {
		if !l.lookAt.After(began) && len(due) < maxLook {
			due = append(due, Ticket{l.resource, l.places[0].waiter.Number})
		}
	}
	f.mu.Unlock()
	if len(due) == 0 {
		return
	}
	sights, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) ([]Sight, error) {
		return f.config.Backend.Look(ctx, due)
	}, nil)
	if err != nil {
		f.config.Logger.Debug("waitqueue: queue not looked at", "error", err)
	}
	seen := make(map[int64]Sight, len(sights))
	for _, s := range sights {
		seen[s.Number] = s
	}
	for _, ticket := range due {
		sight, live := seen[ticket.Number]
		if err == nil && !live {
			f.lapse(ticket.Number, began)
			continue
		}
		f.looked(ticket, sight)
	}
}

// looked tells a waiter of its turn, and sets when to look again.
func (f *Front) looked(ticket Ticket, sight Sight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lines[ticket.Resource]
	if l == nil || l.places[0].waiter.Number != ticket.Number {
		return // another one is the first by now, and has its time
	}
	if sight.Turn {
		l.places[0].signal()
	}
	pause := l.pause
	l.pause = min(2*l.pause, f.config.MaxPoll)
	// Random, so that processes which wait for one resource do not look together, but not shorter than half: a turn that
	// is announced is no reason to hurry.
	wait := pause/2 + rand.N(pause/2+1)
	if !sight.Turn && sight.After > 0 {
		if f.ear.hears {
			wait = f.config.TTL / 3
		}
		// What ends by time is not announced: be there then.
		wait = min(wait, sight.After+time.Millisecond)
	}
	l.lookAt = time.Now().Add(wait)
}
