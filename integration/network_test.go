package integration_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/integration/internal/postgres"
	"github.com/rowlease/rowlease/integration/internal/proxy"
	"github.com/rowlease/rowlease/locks"
)

// through returns the DSN by way of a proxy.
func through(t *testing.T, dsn string) (*proxy.Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.Start(t, u.Host)
	u.Host = p.Addr()
	return p, u.String()
}

// behindProxy runs the test for each driver: a locker by way of a proxy, a store directly.
func behindProxy(t *testing.T, test func(t *testing.T, p *proxy.Proxy, locker *locks.Locker, direct *bunstore.Store), options ...locks.Option) {
	t.Helper()
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t, postgres.Shared(t))
			p, proxied := through(t, dsn)
			test(t, p, newLocker(t, open(t, driver, proxied), options...), newStore(t, open(t, driver, dsn)))
		})
	}
}

func isFree(store *bunstore.Store, resource string) func() bool {
	return func() bool {
		_, err := store.Get(context.Background(), resource)
		return errors.Is(err, locks.ErrNotFound)
	}
}

// The network swallows everything, without a word: the holder is told before its lease can end.
func TestABlackHoleCannotKeepTheHolderFromKnowing(t *testing.T) {
	behindProxy(t, func(t *testing.T, p *proxy.Proxy, locker *locks.Locker, direct *bunstore.Store) {
		lease, err := locker.TryAcquire(t.Context(), "job:42")
		if err != nil {
			t.Fatal(err)
		}
		p.HoldRequests(true)
		p.HoldReplies(true)
		<-lease.Context().Done()
		if !errors.Is(lease.Err(), locks.ErrExpired) {
			t.Errorf("cause = %v, want ErrExpired", lease.Err())
		}
		// By the database's clock the lease is not over yet.
		if lock, err := direct.Get(t.Context(), "job:42"); err != nil || lock.Token != lease.Token() {
			t.Errorf("Get = %+v, %v; want the lease still there when its holder stops", lock, err)
		}
	}, locks.WithTTL(5*time.Second), locks.WithMargin(2*time.Second))
}

// Connections that are cut cost a renewal, not the lease.
func TestCutConnectionsDoNotLoseTheLease(t *testing.T) {
	renewed := make(chan struct{}, 1000)
	observer := locks.ObserverFunc(func(_ context.Context, event locks.Event) {
		if event.Kind == locks.EventRenewed {
			renewed <- struct{}{}
		}
	})
	behindProxy(t, func(t *testing.T, p *proxy.Proxy, locker *locks.Locker, _ *bunstore.Store) {
		lease, err := locker.TryAcquire(t.Context(), "job:42")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p.Cut()
			<-renewed
			<-renewed
		}
		if err := lease.Err(); err != nil {
			t.Errorf("lease ended: %v", err)
		}
	}, locks.WithTTL(6*time.Second), locks.WithRenewalInterval(300*time.Millisecond), locks.WithObserver(observer))
}

// The reply to the acquire never comes, or the request itself comes late: either way nothing stays behind.
func TestALostAnswerIsFreed(t *testing.T) {
	for name, hold := range map[string]func(p *proxy.Proxy, hold bool){
		"reply":   (*proxy.Proxy).HoldReplies,
		"request": (*proxy.Proxy).HoldRequests,
	} {
		t.Run(name, func(t *testing.T) {
			behindProxy(t, func(t *testing.T, p *proxy.Proxy, locker *locks.Locker, direct *bunstore.Store) {
				// Connected and prepared, so that the acquire is all there is to send.
				if err := locker.Do(t.Context(), "job:42", func(context.Context, *locks.Lease) error { return nil }); err != nil {
					t.Fatal(err)
				}
				hold(p, true)
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if _, err := locker.TryAcquire(ctx, "job:42"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locks.ErrHeld) {
					t.Fatalf("TryAcquire = %v, want context.DeadlineExceeded", err)
				}
				if name == "reply" {
					eventually(t, "the lease was granted", func() bool { return !isFree(direct, "job:42")() })
				}
				hold(p, false)
				if name == "request" {
					eventually(t, "the late request was carried out or dropped", isFree(direct, "job:42"))
				}
				eventually(t, "the lease is freed", isFree(direct, "job:42"))
			}, locks.WithTTL(time.Hour))
		})
	}
}
