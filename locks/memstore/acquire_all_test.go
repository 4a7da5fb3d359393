package memstore_test

import (
	"testing"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

// TestAcquireAll: all or nothing, in the requests' order, and the same grants again for the same attempts.
func TestAcquireAll(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), memstore.New()
	requests := []locks.Request{request("c", "worker-1"), request("a", "worker-1"), request("b", "worker-1")}
	other := acquire(t, store, "b", "worker-2")
	_, err := store.AcquireAll(ctx, requests)
	wantIs(t, "one is held", err, locks.ErrHeld)
	if n := store.Rows(); n != 1 {
		t.Errorf("%d rows, want the holder's", n)
	}
	wantIs(t, "release", store.Release(ctx, other.Grant()), nil)
	granted, err := store.AcquireAll(ctx, requests)
	if err != nil {
		t.Fatal(err)
	}
	for i, lock := range granted {
		if lock.Resource != requests[i].Resource {
			t.Errorf("lock %d is of %q, want %q", i, lock.Resource, requests[i].Resource)
		}
	}
	again, err := store.AcquireAll(ctx, requests)
	if err != nil || again[0].Grant() != granted[0].Grant() || again[2].Grant() != granted[2].Grant() {
		t.Errorf("the same attempts: %+v, %v, want %+v", again, err, granted)
	}
	tx := begin(t, store)
	wantIs(t, "guard", tx.Guard(ctx, granted[1].Grant()), nil)
	for i := range requests {
		requests[i].Attempt = "2"
	}
	_, err = store.AcquireAll(ctx, requests)
	wantIs(t, "one is guarded", err, locks.ErrHeld)
	if lock, err := store.Get(ctx, "c"); err != nil || lock.Token != granted[0].Token {
		t.Errorf("%+v, %v, want the grant as it was", lock, err)
	}
	_, err = store.AcquireAll(ctx, append(requests, requests[0]))
	wantIs(t, "the same resource twice", err, locks.ErrInvalid)
}
