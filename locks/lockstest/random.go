package lockstest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func randomPromises() []promise {
	return []promise{{name: "random calls are answered as a model says", test: randomCalls}}
}

// walk is a run of random calls.
type walk struct {
	c      *check
	random *rand.Rand
	model  model
	grants []locks.Grant   // every grant there was, current or not
	asked  []locks.Request // every acquire there was
	trace  []string
}

const randomSteps = 500

func randomCalls(c *check) {
	seed := rand.Uint64()
	if text := os.Getenv("LOCKSTEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			c.Fatalf("LOCKSTEST_SEED: %v", err)
		}
	}
	w := &walk{
		c: c, random: rand.New(rand.NewPCG(seed, 0)),
		model: model{rows: map[string]*modelRow{}, tokens: map[string]int64{}, ids: map[string]int64{}},
	}
	defer func() {
		if c.Failed() {
			c.Logf("repeat with LOCKSTEST_SEED=%d; the last calls:\n%s", seed, strings.Join(w.trace[max(0, len(w.trace)-12):], "\n"))
		}
	}()
	steps := []struct {
		weight int
		do     func(locks.Store)
	}{
		{30, w.acquire},
		{12, w.retry},
		{14, w.renew},
		{12, w.release},
		{6, w.releaseAttempt},
		{10, w.get},
		{10, w.end},
		{4, w.list},
		{3, w.purge},
		{5, w.force},
		{3, w.deleteRow},
		{1, w.truncate},
	}
	var urn []func(locks.Store)
	for _, step := range steps {
		urn = append(urn, slices.Repeat([]func(locks.Store){step.do}, step.weight)...)
	}
	for i := 0; i < randomSteps && !c.Failed(); i++ {
		urn[w.random.IntN(len(urn))](c.stores[w.random.IntN(2)])
		if i%10 == 9 {
			c.wantRows(len(w.model.rows))
		}
	}
}

func (w *walk) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d ", len(w.trace))+fmt.Sprintf(format, args...))
}

func (w *walk) resource() string { return fmt.Sprintf("invoice:%d", w.random.IntN(3)) }
func (w *walk) owner() string    { return fmt.Sprintf("worker-%d", w.random.IntN(3)) }

func (w *walk) acquire(store locks.Store) {
	request := w.c.request(w.resource(), w.owner())
	request.TTL = ttl + time.Duration(w.random.IntN(1000))*time.Millisecond
	if w.random.IntN(2) == 0 {
		request.Metadata = json.RawMessage(fmt.Sprintf(`{"n": %d}`, w.random.IntN(100)))
	}
	w.asked = append(w.asked, request)
	w.try(store, request)
}

// retry repeats an acquire of before, now and then as another owner or of another resource.
func (w *walk) retry(store locks.Store) {
	if len(w.asked) == 0 {
		return
	}
	request := w.asked[max(0, len(w.asked)-1-w.random.IntN(6))]
	switch w.random.IntN(8) {
	case 0:
		request.Owner = w.owner()
	case 1:
		request.Resource = w.resource()
	}
	w.try(store, request)
}

func (w *walk) try(store locks.Store, request locks.Request) {
	want := w.model.acquire(request)
	lock, err := store.Acquire(w.c.Context(), request)
	w.note("Acquire %s by %s, %s: want %s, got token %d, %v", request.Resource, request.Owner, request.Attempt, want, lock.Token, err)
	switch {
	case want == held:
		w.c.wantHeld(err, *w.model.live(request.Resource))
	case err != nil:
		w.c.Errorf("err = %v, want %s", err, want)
	case want == found:
		w.c.wantSame(found, lock, *w.model.live(request.Resource))
	default:
		record, ok := w.model.take(request, lock)
		w.c.wantSame(granted, lock, record)
		if !ok {
			w.c.Errorf("id %d, token %d: want a larger token, and a new id for a new row", lock.ID, lock.Token)
		}
		w.grants = append(w.grants, lock.Grant())
	}
}

// grant is one of the last few, now and then spoilt.
func (w *walk) grant() locks.Grant {
	if len(w.grants) == 0 {
		return locks.Grant{Resource: w.resource(), Owner: w.owner(), Token: 1}
	}
	grant := w.grants[max(0, len(w.grants)-1-w.random.IntN(5))]
	switch w.random.IntN(10) {
	case 0:
		grant.Owner = w.owner()
	case 1:
		grant.Token = locks.AnyToken
	case 2:
		grant.Resource = w.resource()
	}
	return grant
}

func (w *walk) renew(store locks.Store) {
	grant := w.grant()
	reason := w.model.lost(grant)
	ttl := ttl + time.Duration(w.random.IntN(5000)-2500)*time.Millisecond
	asked := time.Now()
	lock, err := store.Renew(w.c.Context(), grant, ttl)
	w.note("Renew %+v: want %v, got %v", grant, reason, err)
	if reason != nil {
		w.c.wantLost(err, grant, reason)
		return
	}
	want := w.model.live(grant.Resource)
	want.ExpiresAt = lock.ExpiresAt
	if err != nil {
		w.c.Errorf("err = %v, want a renewal", err)
		return
	}
	w.c.wantSame("Renew", lock, *want)
	w.c.wantRemaining("Renew", lock.Remaining, ttl, asked)
}

func (w *walk) release(store locks.Store) {
	grant := w.grant()
	reason := w.model.lost(grant)
	if errors.Is(reason, locks.ErrExpired) && w.c.h.DeleteRow == nil {
		return // as in settle
	}
	err := store.Release(w.c.Context(), grant)
	w.note("Release %+v: want %v, got %v", grant, reason, err)
	switch {
	case reason != nil:
		w.c.wantLost(err, grant, reason)
		if errors.Is(reason, locks.ErrExpired) {
			w.settle(grant.Resource)
		}
	case err != nil:
		w.c.Errorf("err = %v, want a release", err)
	default:
		delete(w.model.rows, grant.Resource)
	}
}

func (w *walk) releaseAttempt(store locks.Store) {
	if len(w.asked) == 0 {
		return
	}
	request := w.asked[max(0, len(w.asked)-1-w.random.IntN(4))]
	row := w.model.rows[request.Resource]
	own := row != nil && row.lock.Owner == request.Owner && row.attempt == request.Attempt
	current := own && !row.ended
	if own && row.ended && w.c.h.DeleteRow == nil {
		return // as in settle
	}
	err := store.ReleaseAttempt(w.c.Context(), request.Resource, request.Owner, request.Attempt)
	w.note("ReleaseAttempt %s by %s, %s: want success %t, got %v", request.Resource, request.Owner, request.Attempt, current, err)
	switch {
	case current && err != nil:
		w.c.Errorf("err = %v, want a release", err)
	case current:
		delete(w.model.rows, request.Resource)
	case !errors.Is(err, locks.ErrNotHeld):
		w.c.Errorf("err = %v, want ErrNotHeld", err)
	case own:
		w.settle(request.Resource)
	}
}

// settle deletes an ended row whose own release came late: whether that left it there is the store's affair.
func (w *walk) settle(resource string) {
	w.c.deleteRow(resource)
	delete(w.model.rows, resource)
}

func (w *walk) get(store locks.Store) {
	resource := w.resource()
	want := w.model.live(resource)
	lock, err := store.Get(w.c.Context(), resource)
	w.note("Get %s: got token %d, %v", resource, lock.Token, err)
	switch {
	case want == nil && !errors.Is(err, locks.ErrNotFound):
		w.c.Errorf("err = %v, want ErrNotFound", err)
	case want != nil && err != nil:
		w.c.Errorf("err = %v, want a lease", err)
	case want != nil:
		w.c.wantSame("Get", lock, *want)
	}
}
