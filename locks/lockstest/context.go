package lockstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks"
)

func contextPromises() []promise {
	return []promise{
		{name: "a call whose context has ended changes nothing", test: contextEnded},
		{name: "a call whose context ends meanwhile is answered, or ends in the context's error", test: contextEnds},
	}
}

func contextEnded(c *check) {
	cancelled, cancel := context.WithCancel(c.Context())
	cancel()
	caused, cancelCause := context.WithCancelCause(c.Context())
	cancelCause(errors.New("the client hung up"))
	expired, cancelExpired := context.WithDeadline(c.Context(), time.Now().Add(-time.Second))
	defer cancelExpired()

	request := c.request(resource, "worker-1")
	held := c.grant(c.a, request)
	c.acquire(c.b, "ended", "worker-1")
	c.expire("ended")
	for _, end := range []struct {
		ctx  context.Context //nolint:containedctx // a table of contexts
		want error
	}{{cancelled, context.Canceled}, {caused, context.Canceled}, {expired, context.DeadlineExceeded}} {
		for _, store := range []locks.Store{c.a, c.b} {
			for name, call := range contextCalls(c, store, held, request.Attempt) {
				if err := call(end.ctx); !errors.Is(err, end.want) || errors.Is(err, locks.ErrHeld) {
					c.Errorf("%s: err = %v, want %v", name, err, end.want)
				}
			}
		}
	}
	c.wantStored(held)
	c.wantFree("free")
	c.wantRows(2)
	c.wantNobodyWaits(held.Resource)
	c.acquire(c.b, "free", "worker-2")
}

// contextCalls are calls that would all change or find something.
func contextCalls(c *check, store locks.Store, held locks.Lock, attempt string) map[string]func(context.Context) error {
	again, other, free := c.request(held.Resource, held.Owner), c.request(held.Resource, "worker-2"), c.request("free", "worker-1")
	acquire := func(request locks.Request) func(context.Context) error {
		return func(ctx context.Context) error { _, err := store.Acquire(ctx, request); return err }
	}
	calls := map[string]func(context.Context) error{
		"Acquire of a free one": acquire(free),
		"Acquire again":         acquire(again),
		"Acquire of a held one": acquire(other),
		"Renew":                 func(ctx context.Context) error { _, err := store.Renew(ctx, held.Grant(), 2*ttl); return err },
		"Release":               func(ctx context.Context) error { return store.Release(ctx, held.Grant()) },
		"ReleaseAttempt":        func(ctx context.Context) error { return store.ReleaseAttempt(ctx, held.Resource, held.Owner, attempt) },
		"Get":                   func(ctx context.Context) error { _, err := store.Get(ctx, held.Resource); return err },
	}
	if multi, ok := store.(locks.MultiAcquirer); ok {
		calls["AcquireAll"] = func(ctx context.Context) error {
			_, err := multi.AcquireAll(ctx, []locks.Request{free, again})
			return err
		}
	}
	if lister, ok := store.(locks.Lister); ok {
		calls["List"] = func(ctx context.Context) error { _, err := lister.List(ctx, locks.ListQuery{}); return err }
	}
	if purger, ok := store.(locks.Purger); ok {
		calls["Purge"] = func(ctx context.Context) error { _, err := purger.Purge(ctx, 10); return err }
	}
	if forcer, ok := store.(locks.ForceReleaser); ok {
		calls["ForceRelease"] = func(ctx context.Context) error {
			_, err := forcer.ForceRelease(ctx, held.Resource, held.Token)
			return err
		}
	}
	if queuer, ok := store.(locks.Queuer); ok {
		calls["Enqueue"] = func(ctx context.Context) error { _, err := queuer.Enqueue(ctx, other, 0); return err }
		calls["Waiters"] = func(ctx context.Context) error { _, err := queuer.Waiters(ctx, held.Resource, 1); return err }
	}
	if sharer, ok := store.(locks.Sharer); ok {
		share := free
		share.Slots = locks.Shared
		calls["Acquire of a share"] = acquire(share)
		calls["Holders"] = func(ctx context.Context) error { _, err := sharer.Holders(ctx, held.Resource, 1); return err }
	}
	return calls
}

// contextEnds gives up acquires at different instants. What such an acquire left behind is found by a retry of the
// same attempt, so that nothing stays held by nobody.
func contextEnds(c *check) {
	for i := range 16 {
		request := c.request(fmt.Sprintf("invoice:%d", i), "worker-1")
		ctx, cancel := context.WithTimeout(c.Context(), time.Duration(i)*100*time.Microsecond)
		lock, err := c.a.Acquire(ctx, request)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("given up: err = %v, want a grant or context.DeadlineExceeded", err)
		}
		var retried locks.Lock
		for began := time.Now(); ; { // the database may still be busy with what was given up
			var retryErr error
			retried, retryErr = c.b.Acquire(c.Context(), request)
			if retryErr == nil {
				break
			}
			var held *locks.HeldError
			busy := errors.Is(retryErr, locks.ErrBusy) || errors.As(retryErr, &held) && held.Holder == nil
			if !busy || time.Since(began) > c.patience {
				c.Fatalf("the retry: %v, want its grant", retryErr)
			}
			time.Sleep(time.Millisecond)
		}
		if err == nil {
			c.wantSame("the retry of a grant", retried, lock)
		}
	}
}
