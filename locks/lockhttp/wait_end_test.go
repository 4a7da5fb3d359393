package lockhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// A wait outlives faults, and a grant whose answer was lost is found by the next try, and stays the client's also when the
// lost answer comes in the end.
func TestALostAnswerDuringAWaitIsFoundAgain(t *testing.T) {
	for name, lose := range map[string]func(store *memstore.Store, request locks.Request) (locks.Lock, error){
		"a fault after the grant": func(store *memstore.Store, request locks.Request) (locks.Lock, error) {
			_, _ = store.Acquire(context.Background(), request)
			return locks.Lock{}, errors.New("connection reset")
		},
		"a call that hangs": func(store *memstore.Store, request locks.Request) (locks.Lock, error) {
			lock, err := store.Acquire(context.Background(), request)
			time.Sleep(12 * time.Second)
			return lock, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				var calls atomic.Int32
				g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
					if calls.Add(1) == 1 {
						return lose(g.store.Store, request)
					}
					return g.store.Store.Acquire(ctx, request)
				}
				w := g.send("POST", "/locks/r?wait=20s", asksW2)
				want(t, w, 200)
				time.Sleep(15 * time.Second)
				g.settle()
				lock, err := g.store.Store.Get(t.Context(), "r")
				if err != nil || lock.Token != *parse(t, w).Lock.Token {
					t.Errorf("the store has %+v, %v; the client was told %s", lock, err, w.Body)
				}
			})
		})
	}
}

// A try that is under way when the wait ends is worth more than an answer that nothing is known.
func TestATryMayEndAfterTheWait(t *testing.T) {
	for _, free := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			if !free {
				g.acquire("r", "w1")
			}
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				select {
				case <-time.After(3 * time.Second):
				case <-ctx.Done():
					return locks.Lock{}, ctx.Err()
				}
				return g.store.Store.Acquire(ctx, request)
			}
			w := g.send("POST", "/locks/r?wait=1s", asksW2)
			want(t, w, 200)
			if parse(t, w).Acquired != free {
				t.Errorf("free = %v: answer = %s", free, w.Body)
			}
			g.settle()
			if free && g.holder("r") != "w2" {
				t.Error("the grant was taken back")
			}
		})
	}
}

// Each way in which a wait ends for nobody. Whoever named the attempt finds what was granted.
func TestAWaitForNobodyLeavesNoLease(t *testing.T) {
	for name, row := range map[string]struct {
		lose  func(g *rig, r *http.Request)
		named string // the holder in the end, where the attempt is named
	}{
		"the client goes before the grant": {func(g *rig, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
			}()
			time.Sleep(2 * time.Second)
			cancel()
			synctest.Wait()
			g.release("r", "w1")
			<-done
		}, ""},
		"the client goes in the instant of the grant": {func(g *rig, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			g.store.acquire = func(_ context.Context, request locks.Request) (locks.Lock, error) {
				lock, err := g.store.Store.Acquire(context.Background(), request)
				if err == nil {
					cancel()
				}
				return lock, err
			}
			time.AfterFunc(2*time.Second, func() { g.release("r", "w1") })
			g.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		}, "w2"},
		"the answer cannot be written": {func(g *rig, r *http.Request) {
			time.AfterFunc(2*time.Second, func() { g.release("r", "w1") })
			g.ServeHTTP(deaf{httptest.NewRecorder()}, r)
		}, "w2"},
		"the store's last answer is lost": {func(g *rig, r *http.Request) {
			g.release("r", "w1")
			g.store.acquire = func(ctx context.Context, request locks.Request) (locks.Lock, error) {
				_, _ = g.store.Store.Acquire(ctx, request)
				return locks.Lock{}, errors.New("connection reset")
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			want(g.t, w, 503, "unavailable")
		}, "w2"},
	} {
		for _, key := range []string{"", "k1"} {
			t.Run(name+" "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t)
					g.acquire("r", "w1")
					r := call{"POST", "/locks/r?wait=20s", asksW2, nil}.request()
					holder := ""
					if key != "" {
						r.Header.Set("Idempotency-Key", key)
						holder = row.named
					}
					row.lose(g, r)
					g.settle()
					if got := g.holder("r"); got != holder {
						t.Errorf("holder = %q, want %q", got, holder)
					}
					if holder == "" {
						g.acquire("r", "w3") // so nobody has a place left either
					}
				})
			})
		}
	}
}

func TestCloseEndsWaitsWith503(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.acquire("r", "w1")
		answer := g.start("/locks/r?wait=30s")
		time.Sleep(time.Second)
		began := time.Now()
		g.settle()
		w := <-answer
		want(t, w, 503, "unavailable")
		if time.Since(began) != 0 || w.Header().Get("Retry-After") == "" {
			t.Errorf("answered after %v with %v", time.Since(began), w.Header())
		}
		g.release("r", "w1")
		g.acquire("r", "w3") // so no place is left
	})
}
