package waitqueue_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/waitqueue"
)

var errDown = errors.New("connection reset by peer")

type row struct {
	number                   int64
	resource, owner, attempt string
	ends                     time.Time
}

// backend is a queue in memory that counts what it is asked, and that a test can hold up, fail, or run late.
type backend struct {
	mu       sync.Mutex
	last     int64
	rows     []row
	held     map[string]time.Time // until when
	late     time.Duration        // how much the clock is ahead
	calls    map[string]int
	most     map[string]int // tickets in one call
	before   map[string]func(ctx context.Context) error
	after    map[string]func() error
	sights   func(waitqueue.Sight) waitqueue.Sight
	notified map[string]func(payload string) // by channel
}

func newBackend() *backend {
	return &backend{
		held: map[string]time.Time{}, calls: map[string]int{}, most: map[string]int{},
		before: map[string]func(context.Context) error{}, after: map[string]func() error{}, notified: map[string]func(string){},
	}
}

// step runs one call.
func (b *backend) step(ctx context.Context, name string, tickets int, fn func(now time.Time) error) error {
	b.mu.Lock()
	b.calls[name]++
	b.most[name] = max(b.most[name], tickets)
	before, after := b.before[name], b.after[name]
	b.mu.Unlock()
	if before != nil {
		if err := before(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	err := fn(time.Now().Add(b.late))
	b.mu.Unlock()
	if err == nil && after != nil {
		err = after()
	}
	return err
}

func (b *backend) Enqueue(ctx context.Context, r locks.Request, ttl time.Duration, _ string, most int) (w locks.Waiter, err error) {
	err = b.step(ctx, "Enqueue", 1, func(now time.Time) error {
		b.rows = slices.DeleteFunc(b.rows, func(t row) bool { return !now.Before(t.ends) })
		w = locks.Waiter{Resource: r.Resource, Owner: r.Owner, Since: now, ExpiresAt: now.Add(ttl)}
		for _, t := range b.rows {
			if t.attempt == r.Attempt {
				w.Number = t.number
				return nil
			}
		}
		if most > 0 && len(b.rows) >= most {
			return locks.ErrQueueFull
		}
		b.last++
		w.Number = b.last
		b.rows = append(b.rows, row{b.last, r.Resource, r.Owner, r.Attempt, w.ExpiresAt})
		return nil
	})
	return w, err
}

func (b *backend) first(resource string, now time.Time) *row {
	for i, t := range b.rows {
		if t.resource == resource && now.Before(t.ends) {
			return &b.rows[i]
		}
	}
	return nil
}

func (b *backend) Dequeue(ctx context.Context, resource, _, attempt string) (next int64, err error) {
	err = b.step(ctx, "Dequeue", 1, func(now time.Time) error {
		b.rows = slices.DeleteFunc(b.rows, func(t row) bool { return t.attempt == attempt })
		if first := b.first(resource, now); first != nil && !b.held[resource].After(now) {
			next = first.number
		}
		return nil
	})
	return next, err
}

func (b *backend) find(number int64, now time.Time) *row {
	at, ok := slices.BinarySearchFunc(b.rows, number, func(t row, n int64) int { return cmp.Compare(t.number, n) })
	if !ok || !now.Before(b.rows[at].ends) {
		return nil
	}
	return &b.rows[at]
}

func (b *backend) Keep(ctx context.Context, tickets []int64, ttl time.Duration, _ string) (kept []int64, err error) {
	err = b.step(ctx, "Keep", len(tickets), func(now time.Time) error {
		for _, number := range tickets {
			if t := b.find(number, now); t != nil {
				t.ends = now.Add(ttl)
				kept = append(kept, number)
			}
		}
		return nil
	})
	return kept, err
}

func (b *backend) Look(ctx context.Context, tickets []waitqueue.Ticket) (sights []waitqueue.Sight, err error) {
	err = b.step(ctx, "Look", len(tickets), func(now time.Time) error {
		for _, ticket := range tickets {
			if b.find(ticket.Number, now) == nil {
				continue
			}
			sight := waitqueue.Sight{Number: ticket.Number}
			switch first, until := b.first(ticket.Resource, now), b.held[ticket.Resource]; {
			case first.number != ticket.Number:
				sight.After = first.ends.Sub(now)
			case until.After(now):
				sight.After = until.Sub(now)
			default:
				sight.Turn = true
			}
			if b.sights != nil {
				sight = b.sights(sight)
			}
			sights = append(sights, sight)
		}
		return nil
	})
	return sights, err
}

// Announce implements [waitqueue.Announcer].
func (b *backend) Announce(ctx context.Context, channel, payload string) (err error) {
	var heard func(string)
	err = b.step(ctx, "Announce", 1, func(time.Time) error { heard = b.notified[channel]; return nil })
	if err == nil && heard != nil {
		heard(payload)
	}
	return err
}

// hold makes a resource held for d, or free.
func (b *backend) hold(resource string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[resource] = time.Now().Add(b.late + d)
}

// release frees a resource and announces it, as the stores do.
func (b *backend) release(resource string) {
	b.hold(resource, 0)
	b.mu.Lock()
	first := b.first(resource, time.Now().Add(b.late))
	heard := slices.Collect(func(yield func(func(string)) bool) {
		for _, h := range b.notified {
			yield(h)
		}
	})
	b.mu.Unlock()
	for _, h := range heard {
		h(strconv.FormatInt(first.number, 10))
	}
}

func (b *backend) on(name string, fn func(context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before[name] = fn
}

// count returns how often a method was called, or all of them.
func (b *backend) count(names ...string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, calls := range b.calls {
		if len(names) == 0 || slices.Contains(names, name) {
			n += calls
		}
	}
	return n
}

func (b *backend) tickets() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows)
}

// waker hears what a backend announces, unless the script of a connection says otherwise.
type waker struct {
	backend *backend
	// script is what the n-th connection does, from 1; nil to hear.
	script func(n int, ctx context.Context, listening func(), heard func(string)) error

	mu               sync.Mutex
	dials, open, top int
}

func (w *waker) Listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	w.mu.Lock()
	w.dials++
	n := w.dials
	w.open++
	w.top = max(w.top, w.open)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open--
	}()
	if w.script != nil {
		return w.script(n, ctx, listening, heard)
	}
	return w.listen(ctx, channel, listening, heard)
}

func (w *waker) listen(ctx context.Context, channel string, listening func(), heard func(string)) error {
	w.hears(channel, heard)
	defer w.hears(channel, nil)
	listening()
	<-ctx.Done()
	return ctx.Err()
}

func (w *waker) hears(channel string, heard func(string)) {
	w.backend.mu.Lock()
	defer w.backend.mu.Unlock()
	if heard == nil {
		delete(w.backend.notified, channel)
	} else {
		w.backend.notified[channel] = heard
	}
}

func (w *waker) count() (dials, open, top int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials, w.open, w.top
}

// logbook is what a logger was told.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logbook) count(level string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "level="+level)
}

// bubble runs a test in virtual time. When it is over days pass, for calls that hang: a goroutine that is still there then
// fails it.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(100 * time.Hour)
		fn(t)
	})
}

func newFront(t *testing.T, config waitqueue.Config) *waitqueue.Front {
	t.Helper()
	front, err := waitqueue.NewFront(config)
	if err != nil {
		t.Fatal(err)
	}
	return front
}

func ask(resource, attempt string) locks.Request {
	return locks.Request{Resource: resource, Owner: "w", Attempt: attempt, TTL: time.Minute}
}

func enqueue(t *testing.T, front *waitqueue.Front, resource, attempt string) locks.Place {
	t.Helper()
	place, err := front.Enqueue(t.Context(), ask(resource, attempt), 0)
	if err != nil {
		t.Fatalf("Enqueue(%s, %s): %v", resource, attempt, err)
	}
	return place
}

func leave(t *testing.T, places ...locks.Place) {
	t.Helper()
	for _, place := range places {
		if err := place.Leave(t.Context()); err != nil {
			t.Errorf("Leave: %v", err)
		}
	}
}

// wait returns after how long the place is called, or fails.
func wait(t *testing.T, place locks.Place, most time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	select {
	case <-place.Turn():
	case <-time.After(most):
		t.Errorf("ticket %d is not called within %v", place.Waiter().Number, most)
	}
	return time.Since(start)
}

// hang is a call that ignores its context.
func hang(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return fmt.Errorf("after %v: %w", d, errDown) }
}

func fail(context.Context) error { return errDown }

// wantGoroutines fails if there are more than before. One that has ended may be counted for a moment longer.
func wantGoroutines(t *testing.T, before int) {
	t.Helper()
	for range 20_000_000 { // nothing depends on how fast that is
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, want the %d of before", runtime.NumGoroutine(), before)
}
