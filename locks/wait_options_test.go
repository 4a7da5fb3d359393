package locks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func waiter(attempt string) locks.Request {
	return locks.Request{Resource: "job", Owner: "w", Attempt: attempt, TTL: time.Minute}
}

func TestWaitOptions(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for name, test := range map[string]struct {
		options locks.WaitOptions
		script  func(store *queueStore)
		want    error
		least   time.Duration
		most    time.Duration
	}{
		"the defaults wait": {want: context.DeadlineExceeded, least: 20 * time.Second, most: 20 * time.Second},
		"absurd values are the defaults": {
			options: locks.WaitOptions{MinBackoff: -1, MaxBackoff: -1, CallLimit: -1, MaxWaiters: -1},
			want:    context.DeadlineExceeded, least: 20 * time.Second, most: 20 * time.Second,
		},
		"closing": {options: locks.WaitOptions{Closing: closed}, want: locks.ErrClosed},
		"most waiters": {
			options: locks.WaitOptions{MaxWaiters: 1},
			script: func(store *queueStore) {
				place, err := store.Store.Enqueue(context.Background(), waiter("another"), 0)
				if err == nil {
					time.AfterFunc(time.Minute, func() { _ = place.Leave(context.Background()) })
				}
			},
			want: locks.ErrQueueFull,
		},
		"the call's limit": {
			options: locks.WaitOptions{CallLimit: time.Second},
			script: func(store *queueStore) {
				store.onEnqueue = func(_ context.Context, call func() (locks.Place, error)) (locks.Place, error) {
					time.Sleep(time.Hour)
					return call()
				}
			},
			want: context.DeadlineExceeded, least: 10 * time.Second, most: 13 * time.Second, // faults for so long
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueueStore()
				holder := waiter("held")
				holder.Owner = "holder"
				if _, err := store.Acquire(t.Context(), holder); err != nil {
					t.Fatal(err)
				}
				if test.script != nil {
					test.script(store)
				}
				left := 0
				done := make(chan struct{}, 100)
				test.options.Background = func(fn func()) {
					left++
					go func() { fn(); done <- struct{}{} }()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				start := time.Now()
				request := waiter("a")
				_, err := locks.Wait(ctx, store, request, test.options, func(ctx context.Context) (locks.Lock, error) {
					return store.Acquire(ctx, request)
				})
				wantErr(t, err, test.want)
				store.mu.Lock()
				if store.most < 0 {
					t.Errorf("the queue was asked for at most %d", store.most)
				}
				store.mu.Unlock()
				if took := time.Since(start); took < test.least || took > test.most {
					t.Errorf("returned after %v, want %v to %v", took, test.least, test.most)
				}
				for range left {
					<-done
				}
				if !errors.Is(err, locks.ErrQueueFull) {
					wantNoTickets(t, store)
				}
				time.Sleep(3 * time.Hour)
			})
		})
	}
}
