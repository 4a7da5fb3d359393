package echolock_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// tolds is an OnLost that keeps what it is told.
func tolds(told *[]error) func(config *echolock.Config) {
	return func(config *echolock.Config) {
		config.OnLost = func(_ *locks.Lease, err error) { *told = append(*told, err) }
	}
}

// There is no renewal under a transaction: the handler has the TTL, and what it does after that is rolled back.
func TestATransactionLongerThanTheTTLIsLost(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]echo.HandlerFunc{
		"an answer": created, "nothing": func(echo.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rig, db := newTxRig(t)
				var told []error
				rig.pay(func(c echo.Context) error {
					began := time.Now()
					ctx := c.Request().Context()
					<-ctx.Done()
					if took := time.Since(began); took > 30*time.Second || took < 20*time.Second {
						t.Errorf("the context ended after %v, want a little before 30s", took)
					}
					if cause := context.Cause(ctx); !errors.Is(cause, locks.ErrExpired) {
						t.Errorf("cause = %v, want ErrExpired", cause)
					}
					time.Sleep(time.Minute) // a handler that looks at no context; the key is still its own
					meanwhile := payRequest("a1")
					wantProblem(t, rig.serve(meanwhile), http.StatusLocked, lockhttp.TypeHeld)
					return answer(c)
				}, inTx(db), tolds(&told))
				wantProblem(t, rig.post("a1"), http.StatusServiceUnavailable, lockhttp.TypeLost)
				synctest.Wait()
				if len(told) != 1 || !errors.Is(told[0], locks.ErrExpired) {
					t.Errorf("told %v, want ErrExpired once", told)
				}
				db.wantEnds(t, 0, 2)
				rig.wantFree("a1")
			})
		})
	}
}

// The lease may end between its release in the transaction and the commit: nobody else had it before the commit.
func TestACommittedAnswerGoesOutWhateverBecameOfTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rig, db := newTxRig(t)
		db.committing = func() { time.Sleep(time.Minute) }
		rig.pay(created, inTx(db))
		wantCode(t, rig.post("a1"), http.StatusCreated)
		db.wantEnds(t, 1, 0)
		rig.wantFree("a1")
	})
}

func TestARollbackIsNoLossToOnLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rig, db := newTxRig(t)
		var told []error
		rig.pay(func(echo.Context) error { return errDeclined }, inTx(db), tolds(&told))
		rig.post("a1")
		rig.POST("/pay/2", created, rig.guard(inTx(db), tolds(&told), func(config *echolock.Config) {
			config.KeyLookup = "header:Idempotency-Key"
		}))
		db.commit = errConstraint
		rig.serve(ask("/pay/2", "", "Idempotency-Key: a1"))
		synctest.Wait()
		if len(told) != 0 {
			t.Errorf("told %v", told)
		}
		db.wantEnds(t, 0, 2)
	})
}

func TestAHandlerBeyondMaxHoldIsRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rig, db := newTxRig(t)
		rig.pay(func(c echo.Context) error {
			<-c.Request().Context().Done()
			if cause := context.Cause(c.Request().Context()); !errors.Is(cause, locks.ErrMaxHold) {
				t.Errorf("cause = %v, want ErrMaxHold", cause)
			}
			return created(c)
		}, inTx(db), func(config *echolock.Config) { config.MaxHold = time.Second })
		wantProblem(t, rig.post("a1"), http.StatusServiceUnavailable, lockhttp.TypeUnavailable)
		db.wantEnds(t, 0, 1)
		rig.wantFree("a1")
	})
}
