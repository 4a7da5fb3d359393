package waitqueue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// maxLook is how many tickets one statement looks at.
const maxLook = 500

// look looks at the first place of each queue whose time has come, and returns the least pause before the next look: the
// more queues there are, the longer, so that one statement is for many of them.
func (f *Front) look(now time.Time) (pause time.Duration) {
	due, all := f.due(now)
	if len(due) == 0 {
		return 0
	}
	sights, err := call.Do(context.Background(), f.limit(), func(ctx context.Context) ([]Sight, error) {
		return f.config.Backend.Look(ctx, due)
	}, nil)
	if err != nil {
		f.log(slog.LevelDebug, "waitqueue: queue not looked at", err)
	}
	seen := make(map[int64]Sight, len(sights))
	for _, sight := range sights {
		seen[sight.Number] = sight
	}
	for _, ticket := range due {
		if sight, live := seen[ticket.Number]; live || err != nil {
			f.looked(ticket, sight)
		} else {
			f.lapse(ticket.Number)
		}
	}
	return f.config.MinPoll * time.Duration(min(all, maxLook)) / maxLook
}

// due returns the first tickets of the queues whose time has come, and how many queues there are.
func (f *Front) due(now time.Time) (due []Ticket, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.queues {
		if len(due) < maxLook && !q.lookAt.After(now) {
			due = append(due, Ticket{q.resource, q.places[0].waiter.Number, q.places[0].request.Slots})
		}
	}
	return due, len(f.queues)
}

// looked tells a waiter of its turn, and sets when to look again. Of a failed look the sight is empty.
func (f *Front) looked(ticket Ticket, sight Sight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[ticket.Resource]
	if q == nil || q.places[0].waiter.Number != ticket.Number {
		return // another one is the first by now, and has its time
	}
	if sight.Turn {
		q.places[0].signal()
	}
	// Random, so that processes which wait for one resource do not look together, but not shorter than half: a turn that
	// is announced is no reason to hurry.
	least := q.pause / 2
	wait := least + rand.N(q.pause-least+1)
	q.pause = min(2*q.pause, f.config.MaxPoll)
	if !sight.Turn && sight.After > 0 {
		if f.hearsLocked() {
			wait = f.config.TTL / 3
		}
		// What ends by time is not announced: be there then. But what is about to end again and again is not looked at all
		// the time.
		soon := sight.After + time.Millisecond
		if q.hurried {
			soon = max(soon, f.config.MinPoll)
		}
		wait = min(wait, soon)
	}
	q.hurried = wait < f.config.MinPoll/2
	q.lookAt = time.Now().Add(wait)
}
