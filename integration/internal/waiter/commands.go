package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowlease/rowlease/locks"
)

// waiters are those who wait in this process.
type waiters struct {
	locker  *locks.Locker
	acquire func(ctx context.Context, resource, owner string) (grant, error)

	mu      sync.Mutex
	waiting map[string]func() // what to do when the owner is queued, once
	kept    map[string]grant  // by owner
}

func newWaiters() *waiters {
	return &waiters{waiting: make(map[string]func()), kept: make(map[string]grant)}
}

// serve does what the lines tell, each on a goroutine of its own, until there are no more. In each case it answers when it is
// done, and before where it says so; instants are in ns on the clock that all processes of the machine have in common.
//
//	pass R O       O waits for R and passes it on: "queued O", "granted O <token>" when it has it, before its release
//	crowd R N P    N owners, P-0 and so on, do that without a word, of whom eight at a time queue: "queued P" when all are queued,
//	               or have had their turn, "passed P" when all have passed it on
//	keep R O       O waits for R and keeps it: "queued O", "got O <instant>" when its acquire has returned
//	free O         O releases: "freed O <instant>", that of the start
//	floor N D      N acquires of free resources, each after a pause of D, and released: "floor <ns> <ns> …", the time of each
//	               acquire alone
func serve(commands io.Reader, w *waiters) error {
	ctx := context.Background()
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		go func() {
			if err := w.do(ctx, words); err != nil {
				say("error: %q: %v", words, err)
			}
		}()
	}
	return lines.Err()
}

func (w *waiters) do(ctx context.Context, words []string) error {
	var n int
	switch command := strings.Join(words[:1], ""); {
	case command == "pass" && len(words) == 3:
		return w.pass(ctx, words[1], words[2])
	case command == "crowd" && len(words) == 4 && number(words[2], &n):
		return w.crowd(ctx, words[1], n, words[3])
	case command == "keep" && len(words) == 3:
		return w.keep(ctx, words[1], words[2])
	case command == "free" && len(words) == 2:
		return w.free(ctx, words[1])
	case command == "floor" && len(words) == 3 && number(words[1], &n):
		pause, err := time.ParseDuration(words[2])
		if err != nil {
			return err
		}
		return w.floor(ctx, n, pause)
	}
	return fmt.Errorf("not known")
}

func number(word string, n *int) bool {
	_, err := fmt.Sscan(word, n)
	return err == nil
}

func (w *waiters) pass(ctx context.Context, resource, owner string) error {
	w.whenQueued(owner, func() { say("queued %s", owner) })
	got, err := w.acquire(ctx, resource, owner)
	if err != nil {
		return err
	}
	say("granted %s %d", owner, got.Token())
	return got.Release(ctx)
}

func (w *waiters) crowd(ctx context.Context, resource string, n int, prefix string) error {
	const atOnce = 8
	var queued, passed sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		queued.Add(1)
		settled := sync.OnceFunc(func() { <-room; queued.Done() })
		owner := fmt.Sprintf("%s-%d", prefix, i)
		w.whenQueued(owner, settled)
		passed.Go(func() {
			got, err := w.acquire(ctx, resource, owner)
			settled()
			if err == nil {
				err = got.Release(ctx)
			}
			if err != nil {
				say("error: %s: %v", owner, err)
			}
		})
	}
	queued.Wait()
	say("queued %s", prefix)
	passed.Wait()
	say("passed %s", prefix)
	return nil
}

func (w *waiters) keep(ctx context.Context, resource, owner string) error {
	w.whenQueued(owner, func() { say("queued %s", owner) })
	got, err := w.acquire(ctx, resource, owner)
	at := instant()
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.kept[owner] = got
	w.mu.Unlock()
	say("got %s %d", owner, at)
	return nil
}

func (w *waiters) free(ctx context.Context, owner string) error {
	w.mu.Lock()
	got := w.kept[owner]
	delete(w.kept, owner)
	w.mu.Unlock()
	if got == nil {
		return fmt.Errorf("%s has nothing", owner)
	}
	at := instant()
	if err := got.Release(ctx); err != nil {
		return err
	}
	say("freed %s %d", owner, at)
	return nil
}

func (w *waiters) floor(ctx context.Context, n int, pause time.Duration) error {
	var answer strings.Builder
	for i := range n {
		time.Sleep(pause)
		began := time.Now()
		lease, err := w.locker.TryAcquire(ctx, fmt.Sprint("free:", i))
		took := time.Since(began)
		if err != nil {
			return err
		}
		if err := lease.Release(ctx); err != nil {
			return err
		}
		fmt.Fprint(&answer, " ", took.Nanoseconds())
	}
	say("floor%s", answer.String())
	return nil
}

func (w *waiters) whenQueued(owner string, do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[owner] = do
}

func (w *waiters) queued(owner string) {
	w.mu.Lock()
	do := w.waiting[owner]
	delete(w.waiting, owner)
	w.mu.Unlock()
	if do != nil {
		do()
	}
}

func (w *waiters) observe(_ context.Context, event locks.Event) {
	if event.Kind == locks.EventQueued {
		w.queued(event.Grant.Owner)
	}
}

// instant reads the clock that does not jump, and that all processes of the machine have in common.
func instant() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

var output sync.Mutex

func say(format string, args ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", args...)
}
