package lockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
	"github.com/rowlease/rowlease/locks/memstore"
)

const asksW2 = `{"owner":"w2"}`

// start sends an acquire by w2 on a goroutine.
func (g *rig) start(target string, headers ...string) <-chan *httptest.ResponseRecorder {
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- g.send("POST", target, asksW2, headers...) }()
	return answers
}

func (g *rig) release(resource, owner string) {
	g.t.Helper()
	if err := g.store.Store.Release(context.Background(), locks.Grant{Resource: resource, Owner: owner, Token: locks.AnyToken}); err != nil {
		g.t.Error(err)
	}
}

func (g *rig) keep(resource, owner string, ttl time.Duration) {
	g.t.Helper()
	if _, err := g.store.Store.Renew(g.t.Context(), locks.Grant{Resource: resource, Owner: owner, Token: locks.AnyToken}, ttl); err != nil {
		g.t.Fatal(err)
	}
}

func TestHowLongARequestWaits(t *testing.T) {
	for _, row := range []struct {
		query   string
		prefer  []string
		waits   time.Duration
		applied string
	}{
		{"", nil, 0, ""},
		{"", []string{"wait=3"}, 3 * time.Second, "wait=3"},
		{"", []string{"wait=003"}, 3 * time.Second, "wait=3"},
		{"", []string{`respond-async, WAIT = "5" ; x="a,b", wait=9`}, 5 * time.Second, "wait=5"},
		{"", []string{"respond-async", "return=minimal;wait=1, wait=7"}, 7 * time.Second, "wait=7"},
		{"", []string{"wait=0"}, 0, "wait=0"},
		{"", []string{"wait=600"}, time.Minute, "wait=60"},
		{"", []string{"wait=99999999999999999999"}, time.Minute, "wait=60"},
		{"", []string{"wait=abc"}, 0, ""},
		{"", []string{"wait=abc, wait=4"}, 0, ""},
		{"", []string{"wait=-3"}, 0, ""},
		{"", []string{"wait=1.5"}, 0, ""},
		{"", []string{"wait=3s"}, 0, ""},
		{"", []string{"wait"}, 0, ""},
		{"", []string{"wait="}, 0, ""},
		{"", []string{`wait="3`}, 0, ""},
		{"", []string{`x="a, wait=7, \", wait=8"`}, 0, ""},
		{"", []string{",, ;=,"}, 0, ""},
		{"?wait=3", nil, 3 * time.Second, ""},
		{"?wait=3s", nil, 3 * time.Second, ""},
		{"?wait=1m30s", nil, time.Minute, ""},
		{"?wait=1500ms", nil, 1500 * time.Millisecond, ""},
		{"?wait=0.5s", nil, 500 * time.Millisecond, ""},
		{"?wait=0", nil, 0, ""},
		{"?wait=24h", nil, time.Minute, ""},
		{"?wait=3s&wait=3s", nil, 3 * time.Second, ""},
		{"?wait=3s", []string{"wait=3"}, 3 * time.Second, "wait=3"},
		{"?wait=3s", []string{"wait=abc"}, 3 * time.Second, ""},
		{"?wait=2m", []string{"wait=120"}, time.Minute, "wait=60"},
	} {
		t.Run(fmt.Sprint(row.query, row.prefer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				g.acquire("r", "w1")
				g.keep("r", "w1", time.Hour)
				var headers []string
				for _, value := range row.prefer {
					headers = append(headers, "Prefer: "+value)
				}
				began := time.Now()
				w := g.send("POST", "/locks/r"+row.query, asksW2, headers...)
				want(t, w, 200)
				if parse(t, w).Acquired {
					t.Errorf("granted: %s", w.Body)
				}
				if waited := time.Since(began); waited != row.waits {
					t.Errorf("waited %v, want %v", waited, row.waits)
				}
				if got := w.Header().Get("Preference-Applied"); got != row.applied {
					t.Errorf("Preference-Applied = %q, want %q", got, row.applied)
				}
				g.settle()
			})
		})
	}
}

func TestWaitsThatAreRefused(t *testing.T) {
	for _, row := range []struct {
		query, prefer string
		status        int
		problem       string
	}{
		{"wait=", "", 400, "malformed-request"},
		{"wait=soon", "", 400, "malformed-request"},
		{"wait=3+s", "", 400, "malformed-request"},
		{"wait=%2B3s", "", 400, "malformed-request"},
		{"wait=3e2", "", 400, "malformed-request"},
		{"wait=3us", "", 400, "malformed-request"},
		{"wait=3s&wait=4s", "", 400, "malformed-request"},
		{"Wait=3s", "", 400, "malformed-request"},
		{"wait=3s", "wait=4", 400, "malformed-request"},
		{"wait=0", "wait=4", 400, "malformed-request"},
		{"wait=2m", "wait=180", 400, "malformed-request"}, // though both are above the limit
		{"wait=-3s", "", 422, "invalid-field"},
		{"wait=-3", "", 422, "invalid-field"},
		{"wait=25h", "", 422, "invalid-field"},
		{"wait=99999999999999999999", "", 422, "invalid-field"},
		{"wait=9999999999999h", "", 422, "invalid-field"},
	} {
		for _, longest := range []time.Duration{0, lockhttp.NoWait} {
			g := newRig(t, func(c *lockhttp.Config) { c.MaxWait = longest })
			var headers []string
			if row.prefer != "" {
				headers = []string{"Prefer: " + row.prefer}
			}
			want(t, g.send("POST", "/locks/r?"+row.query, asksW2, headers...), row.status, row.problem, "wait")
			if g.store.Rows() != 0 {
				t.Errorf("%s: something was acquired", row.query)
			}
		}
	}
	g := newRig(t)
	for _, c := range []call{
		{"GET", "/locks/r?wait=3s", "", nil},
		{"DELETE", "/locks/r?owner=w1&wait=3s", "", nil},
		{"POST", "/locks/r/renew?wait=3s", `{"owner":"w1","ttl_seconds":9}`, nil},
		{"GET", "/admin/locks?wait=3s", "", nil},
	} {
		want(t, g.do(c), 400, "malformed-request", "wait")
	}
}

func TestNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, func(c *lockhttp.Config) { c.MaxWait = lockhttp.NoWait })
		g.acquire("r", "w1")
		began := time.Now()
		for _, w := range []*httptest.ResponseRecorder{
			g.send("POST", "/locks/r", asksW2, "Prefer: wait=3"), g.send("POST", "/locks/r?wait=3s", asksW2),
		} {
			if w.Code != 200 || parse(t, w).Acquired || w.Header().Get("Preference-Applied") != "" || time.Since(began) != 0 {
				t.Errorf("answer = %d %v %s after %v", w.Code, w.Header(), w.Body, time.Since(began))
			}
		}
	})
}

// What is free is granted at once, and the TTL of what was waited for begins with the grant.
func TestAWaitIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		began := time.Now()
		w := g.send("POST", "/locks/free?wait=30s", asksW2)
		if !parse(t, w).Acquired || time.Since(began) != 0 {
			t.Errorf("answer = %s after %v", w.Body, time.Since(began))
		}
		g.acquire("r", "w1")
		answer := g.start("/locks/r", "Prefer: wait=20")
		time.Sleep(3 * time.Second)
		g.release("r", "w1")
		w = <-answer
		want(t, w, 200)
		got := parse(t, w)
		if !got.Acquired || *got.Lock.Owner != "w2" || got.Lock.TTLSeconds != 30 || w.Header().Get("Preference-Applied") != "wait=20" {
			t.Errorf("answer = %s %v", w.Body, w.Header())
		}
		if waited := time.Since(began); waited < 3*time.Second || waited > 5*time.Second {
			t.Errorf("waited %v, want 3s and less than a pause", waited)
		}
		if at, err := time.Parse(time.RFC3339, got.Lock.AcquiredAt); err != nil || at.Before(began.Add(3*time.Second)) {
			t.Errorf("acquired_at = %v %v, want after the wait", at, err)
		}
		g.settle()
	})
}

// The answer at the end of a wait tells of the holder as it is then, not as it was when the wait began.
func TestARefusalAfterAWaitTellsOfTheHolderNow(t *testing.T) {
	for _, status := range []int{200, 423, 409} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, func(c *lockhttp.Config) { c.HeldStatus = status })
			g.acquire("r", "w1")
			answer := g.start("/locks/r?wait=20s")
			time.Sleep(15 * time.Second)
			g.keep("r", "w1", time.Minute)
			w := <-answer
			want(t, w, status)
			if got := w.Header().Get("Retry-After"); got != "55" {
				t.Errorf("Retry-After = %q, want 55: %s", got, w.Body)
			}
			if !strings.Contains(w.Body.String(), `"acquired":false`) || !strings.Contains(w.Body.String(), `"holder":{"acquired_at":`) {
				t.Errorf("answer = %s", w.Body)
			}
			g.settle()
		})
	}
}

func TestARefusalAfterAWaitWithoutAHolderSaysSoonAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.acquire("r", "w1")
		g.store.get = func(context.Context, string) (locks.Lock, error) { return locks.Lock{}, errors.New("connection reset") }
		w := g.send("POST", "/locks/r?wait=20s", asksW2)
		want(t, w, 200)
		if got, want := w.Body.String(), `{"acquired":false,"resource":"r","retry_after_seconds":1,"holder":null}`+"\n"; got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
		g.settle()
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	if _, ok := any(memstore.New()).(locks.Queuer); !ok {
		t.Skip("the memory store has no queue")
	}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.acquire("r", "w1")
		order, tried := make(chan int, 5), make(chan struct{})
		for i := range 5 {
			go func() {
				owner := strconv.Itoa(i)
				want(t, g.send("POST", "/locks/r?wait=30s", `{"owner":"`+owner+`"}`), 200)
				order <- i
				<-tried
				g.release("r", owner)
			}()
			synctest.Wait()
		}
		g.release("r", "w1")
		if w := g.send("POST", "/locks/r", asksW2); parse(t, w).Acquired {
			t.Error("a try overtook those who wait")
		}
		close(tried)
		for i := range 5 {
			if got := <-order; got != i {
				t.Errorf("the %d-th to be served is the %d-th that came", i, got)
			}
		}
		g.settle()
	})
}
