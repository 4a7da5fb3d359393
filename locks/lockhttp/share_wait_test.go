package lockhttp_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
)

// waits sends an acquire that waits on a goroutine.
func (g *rig) waits(body string) <-chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- g.send("POST", "/locks/r", body, "Prefer: wait=60") }()
	synctest.Wait()
	return answers
}

func waitsStill(t *testing.T, answers <-chan *httptest.ResponseRecorder) {
	t.Helper()
	synctest.Wait()
	select {
	case w := <-answers:
		t.Errorf("did not wait: %s", w.Body)
	default:
	}
}

func wantGrant(t *testing.T, answers <-chan *httptest.ResponseRecorder, owner string) {
	t.Helper()
	w := <-answers
	want(t, w, 200)
	if got := parse(t, w); !got.Acquired || *got.Lock.Owner != owner {
		t.Errorf("answer = %s, want a grant of %s", w.Body, owner)
	}
}

// Readers wait for a writer, get in together after it, and the next writer waits for both.
func TestReadersAndWritersWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.granted("r", `{"owner":"first"}`)
		began := time.Now()
		r1, r2 := g.waits(share("r1", `"shared":true`)), g.waits(share("r2", `"shared":true`))
		second := g.waits(`{"owner":"second"}`)
		r3 := g.waits(share("r3", `"shared":true`))
		time.Sleep(3 * time.Second)
		waitsStill(t, r1)
		waitsStill(t, r2)
		g.release("r", "first")
		wantGrant(t, r1, "r1")
		wantGrant(t, r2, "r2")
		waitsStill(t, second)
		waitsStill(t, r3)
		g.release("r", "r1")
		waitsStill(t, second)
		g.release("r", "r2")
		wantGrant(t, second, "second")
		waitsStill(t, r3)
		g.release("r", "second")
		wantGrant(t, r3, "r3")
		if took := time.Since(began); took >= 10*time.Second {
			t.Errorf("took %v, want no wait for an end", took)
		}
		g.settle()
	})
}

func TestAWaitForASlotEndsWithTheFirstThatIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		for _, owner := range []string{"w1", "w2"} {
			g.granted("r", share(owner, `"slots":2`))
		}
		g.keep("r", "w1", time.Hour)
		w3 := g.waits(share("w3", `"slots":2`))
		waitsStill(t, w3)
		g.release("r", "w2")
		wantGrant(t, w3, "w3")
		g.settle()
	})
}

// What was free for others when it came is held by a group of theirs when its turn comes.
func TestAWaiterIsToldOfOtherSlotsWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.granted("r", `{"owner":"first"}`)
		r1 := g.waits(share("r1", `"shared":true`))
		five := g.waits(share("w5", `"slots":5`))
		g.release("r", "first")
		wantGrant(t, r1, "r1")
		want(t, <-five, 409, "other-slots")
		g.settle()
	})
}

// That the wait has just ended does not make it "held".
func TestOtherSlotsAtTheEndOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		tries := 0
		g.store.acquire = func(context.Context, locks.Request) (locks.Lock, error) {
			if tries++; tries == 1 {
				return locks.Lock{}, locks.Held("r", &locks.Lock{Owner: "w1", Remaining: time.Hour})
			}
			time.Sleep(2 * time.Second)
			return locks.Lock{}, &locks.SlotsError{Resource: "r", Held: 5, Asked: locks.Shared}
		}
		want(t, g.send("POST", "/locks/r?wait=1s", share("w2", `"shared":true`)), 409, "other-slots")
		g.settle()
	})
}

// A client that asks again when it is told to must not sleep until the last slot is free.
func TestARefusedWaitForASlotTellsOfTheFirstThatEnds(t *testing.T) {
	for name, row := range map[string]struct {
		asked, after string
		fail         error
	}{
		"a slot":                 {share("w3", `"slots":2`), "21", nil},
		"alone":                  {`{"owner":"w3"}`, "3591", nil},
		"a slot, and no answers": {share("w3", `"slots":2`), "1", errors.New("connection reset")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.granted("r", share("w1", `"slots":2`))
				g.keep("r", "w1", time.Hour)
				g.granted("r", share("w2", `"slots":2`))
				if row.fail != nil {
					g.store.holders = func(context.Context, string, int) ([]locks.Lock, error) { return nil, row.fail }
				}
				w := g.send("POST", "/locks/r?wait=9s", row.asked)
				want(t, w, 200)
				if got := w.Header().Get("Retry-After"); got != row.after {
					t.Errorf("Retry-After = %q, want %s: %s", got, row.after, w.Body)
				}
				g.settle()
			})
		})
	}
}

// The queue must know what the one in front waits for.
func TestAPlaceIsForWhatTheRequestAsks(t *testing.T) {
	for body, slots := range map[string]int{share("w2", `"slots":5`): 5, share("w2", `"shared":true`): locks.Shared, asksW2: 0} {
		asked := 0
		q := &queued{enqueue: func(request locks.Request, _ int) (locks.Place, error) {
			if asked++; request.Slots != slots {
				t.Errorf("Slots = %d, want %d", request.Slots, slots)
			}
			return nil, locks.ErrQueueFull
		}}
		g := newRig(t, withQueue(q))
		g.acquire("r", "w1")
		want(t, g.send("POST", "/locks/r?wait=3s", body), 200)
		if asked != 1 {
			t.Errorf("%s: %d places", body, asked)
		}
		g.settle()
	}
}
