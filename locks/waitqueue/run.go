package waitqueue

import (
	"context"
	"log/slog"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxKeep is how many tickets one statement keeps: acquires that take one of them out wait for it.
const maxKeep = 1000

// run keeps the tickets and looks whose turn it is, until nobody waits. It does one after the other, each bounded by a third
// of the TTL, so that a call that hangs does not make the tickets end: a keep begins by two thirds.
func (f *Front) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	keepAt := time.Now().Add(f.config.TTL / 3)
	var (
		unkept []int64   // what is left to be kept this time
		pauses time.Time // no look before that
	)
	for {
		wait, more := f.rest(keepAt, pauses, len(unkept) > 0)
		if !more {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-f.changed:
		}
		if now := time.Now(); !now.Before(keepAt) {
			unkept, keepAt = f.tickets(), now.Add(f.config.TTL/3)
		}
		if len(unkept) > 0 { // a part of them, and then a look: many do not hold up who has the turn
			some := unkept[:min(maxKeep, len(unkept))]
			unkept = unkept[len(some):]
			if began := time.Now(); !f.keep(some) {
				unkept, keepAt = nil, began.Add(min(f.config.MaxPoll, f.config.TTL/3)) // the sooner, the more of them are saved
			}
		}
		if now := time.Now(); !now.Before(pauses) {
			pauses = now.Add(f.look(now))
		}
	}
}

// rest returns how long the goroutine has nothing to do, and whether it is to go on at all.
func (f *Front) rest(keepAt, pauses time.Time, busy bool) (wait time.Duration, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.places) == 0 {
		f.running = false
		f.emptyLocked()
		return 0, false
	}
	f.wakeAt = keepAt
	for _, q := range f.queues {
		at := q.lookAt
		if at.Before(pauses) {
			at = pauses
		}
		if at.Before(f.wakeAt) {
			f.wakeAt = at
		}
	}
	if busy {
		return 0, true
	}
	return max(0, time.Until(f.wakeAt)), true
}

// limit bounds what keeps and looks: see run.
func (f *Front) limit() time.Duration { return min(f.config.CallLimit, f.config.TTL/3) }

func (f *Front) tickets() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	tickets := make([]int64, 0, len(f.places))
	for number := range f.places {
		tickets = append(tickets, number)
	}
	return tickets
}

// keep gives the tickets their time again, and reports whether that could be done.
func (f *Front) keep(tickets []int64) bool {
	kept, err := call.Do(context.Background(), f.limit(), func(ctx context.Context) ([]int64, error) {
		return f.config.Backend.Keep(ctx, tickets, f.config.TTL, f.channel)
	}, nil)
	if err != nil {
		f.log(slog.LevelDebug, "waitqueue: tickets not kept", err)
		return false
	}
	live := make(map[int64]struct{}, len(kept))
	for _, number := range kept {
		live[number] = struct{}{}
	}
	for _, number := range tickets {
		if _, ok := live[number]; !ok {
			f.lapse(number)
		}
	}
	return true
}

// log tells the logger. One that panics must not end the process from a goroutine of ours.
func (f *Front) log(level slog.Level, message string, err error) {
	defer func() { _ = recover() }()
	var args []any
	if err != nil {
		args = []any{"error", err}
	}
	f.config.Logger.Log(context.Background(), level, message, args...)
}

// lapse ends the place of a ticket that is not live any more: expired, or taken out by its grant, of which the waiter
// hears by itself. It never is again: numbers do not come back.
func (f *Front) lapse(number int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.places[number]; p != nil {
		p.lapsed.Store(true)
		f.partLocked(p)
		p.signal()
	}
}
