package election_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/election"
	"github.com/rowlease/rowlease/locks/memstore"
)

// stage is where leaders must be one after another.
type stage struct {
	t *testing.T

	mu    sync.Mutex
	on    map[*player]int64 // the token of each who leads
	last  int64
	terms int
}

// player is one process with a candidate.
type player struct {
	stage     *stage
	link      *link
	candidate *election.Candidate
	killed    bool // it works no more, though its goroutines do not know
	kill      context.CancelFunc
	gone      chan struct{}
}

func (s *stage) enter(p *player, token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.killed {
		return
	}
	if len(s.on) > 0 || token <= s.last {
		s.t.Errorf("term %d has started; led by then %v, the last token was %d", token, s.on, s.last)
	}
	s.on[p], s.last = token, max(token, s.last)
	s.terms++
}

func (s *stage) exit(p *player) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.on, p)
}

func (s *stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

const (
	chaosTTL   = 6 * time.Second
	chaosStop  = time.Second
	leadsPanic = "no more"
)

// lead is what a term is like: it ends by itself, well or badly, or takes its time to stop.
func (p *player) lead(ctx context.Context, term *locks.Lease) error {
	p.stage.enter(p, term.Token())
	defer p.stage.exit(p)
	timer := time.NewTimer(rand.N(4 * chaosTTL))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		time.Sleep(rand.N(chaosStop))
		return ctx.Err()
	case <-timer.C:
	}
	switch rand.N(4) {
	case 0:
		panic(leadsPanic)
	case 1:
		runtime.Goexit()
	case 2:
		return errFault
	}
	return nil
}

// run campaigns until the player is killed.
func (p *player) run(ctx context.Context) {
	defer close(p.gone)
	for ctx.Err() == nil {
		ended := make(chan struct{})
		go func() { // a goroutine for each campaign, since Lead may end it
			defer close(ended)
			defer func() {
				if panicked := recover(); panicked != nil && panicked != leadsPanic {
					panic(panicked)
				}
			}()
			_ = p.candidate.Campaign(ctx)
		}()
		<-ended
	}
}

func (s *stage) player(store *memstore.Store) *player {
	p := &player{stage: s, link: &link{Store: store}, gone: make(chan struct{})}
	p.candidate = newCandidate(s.t, newLocker(s.t, p.link), election.Config{Lead: p.lead, TTL: chaosTTL, StopLimit: chaosStop})
	var ctx context.Context
	ctx, p.kill = context.WithCancel(context.Background())
	go p.run(ctx)
	return p
}

// die kills the player's process, and reports whether it was at work: nothing of it counts any more, and no call of it to the
// store comes through or returns. Its place in the queue, which nobody keeps alive, goes at once.
func (p *player) die() (led bool) {
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	_, led = p.stage.on[p]
	p.killed = true
	delete(p.stage.on, p)
	p.link.set(hung)
	p.kill()
	return led
}

// look checks what candidates say of themselves, while nothing moves.
func (s *stage) look(players []*player) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	leaders := 0
	for _, p := range players {
		if grant, leads := p.candidate.Term(); leads {
			leaders++
			if s.on[p] != grant.Token {
				s.t.Errorf("a candidate says it leads term %d, and leads %d", grant.Token, s.on[p])
			}
		}
	}
	if leaders > 1 {
		s.t.Errorf("%d say that they lead", leaders)
	}
}

// One "stopped" is before the next "started", in a thousand rounds of resignations, kills and faults.
func TestStoppedIsBeforeTheNextStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		s := &stage{t: t, on: make(map[*player]int64)}
		players := make([]*player, 4)
		for i := range players {
			players[i] = s.player(store)
		}
		faults := []state{cut, deaf, slow, hung}
		kills := 0 // of leaders
		for range 1000 {
			i := rand.N(len(players))
			if rand.N(2) == 0 { // the leader, if there is one
				i = max(0, slices.IndexFunc(players, func(p *player) bool { return p.candidate.IsLeader() }))
			}
			p := players[i]
			switch rand.N(8) {
			case 0, 1:
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*chaosStop))
				if err := p.candidate.Resign(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Resign: %v", err)
				}
				cancel()
			case 2, 3, 4:
				p.link.set(faults[rand.N(len(faults))])
			case 5:
				p.link.setRenewing(faults[rand.N(len(faults))])
			case 6:
				if rand.N(4) == 0 { // the database is down for all
					for _, p := range players {
						p.link.set(cut)
					}
				}
			case 7:
				if p.die() {
					kills++
				}
				players[i] = s.player(store)
			}
			s.look(players)
			time.Sleep(rand.N(chaosTTL))
			for _, p := range players {
				if rand.N(2) == 0 {
					p.link.set(whole)
					p.link.setRenewing(whole)
				}
			}
			s.look(players)
		}
		for _, p := range players {
			p.link.set(whole)
			p.link.setRenewing(whole)
		}
		before := s.count()
		time.Sleep(20 * chaosTTL)
		s.look(players)
		after := s.count() - before
		t.Logf("%d terms, of which %d were killed, and %d when all was well again", before, kills, after)
		if before < 200 || kills < 10 || after == 0 {
			t.Errorf("there were %d terms, of which %d were killed, and %d when all was well again", before, kills, after)
		}
		for _, p := range players {
			p.kill()
			<-p.gone
		}
		time.Sleep(2 * chaosTTL) // for what is freed in the background
		wantFree(t, store)
	})
}
