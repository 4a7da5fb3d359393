package echolock_test

import (
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

// A request that waits has no transaction open meanwhile.
func TestAWaitForATransaction(t *testing.T) {
	t.Parallel()
	for name, byTx := range map[string]bool{"behind a lease": false, "behind a transaction": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rig, db := newTxRig(t)
				scope := func(echo.Context) ([]string, error) { return []string{http.MethodPost, "/pay"}, nil }
				first := make(chan struct{})
				slow := func(c echo.Context) error {
					<-first
					return created(c)
				}
				config := echolock.Config{Locker: rig.locker, KeyScope: scope}
				if byTx {
					config.Tx = db
				}
				rig.POST("/slow", slow, echolock.MiddlewareWithConfig(config))
				rig.pay(created, inTx(db), waiting(10*time.Second))

				before := rig.start(ask("/slow", "", "Idempotency-Key: a1"))
				synctest.Wait()
				behind := rig.start(payRequest("a1"))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				db.mu.Lock()
				open := db.begins - db.commits - db.rollbacks
				db.mu.Unlock()
				if byTx {
					open-- // the first one's
				}
				if open != 0 {
					t.Errorf("%d transactions open while a request waits", open)
				}
				close(first)
				wantCode(t, <-before, http.StatusCreated)
				wantCode(t, <-behind, http.StatusCreated)
				rig.wantFree("a1")
			})
		})
	}
}

func TestAWaitThatEndsIs423AndLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rig, db := newTxRig(t)
		rig.hold("a1")
		rig.pay(mustNotRun(t), inTx(db), waiting(2*time.Second))
		wantProblem(t, rig.post("a1"), http.StatusLocked, lockhttp.TypeHeld)
		db.wantEnds(t, 0, db.begins)
		if db.begins == 0 {
			t.Error("no transaction was begun")
		}
	})
}

// Registered twice for one request it acts once; for two keys there are two transactions, and TxFrom is the inner one.
func TestTransactionsWithinOneRequest(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	other := &database{Transactor: rig.store}
	outer := rig.guard(inTx(db))
	inner := func(change func(*echolock.Config)) echo.MiddlewareFunc {
		return rig.guard(func(config *echolock.Config) {
			config.KeyScope = func(echo.Context) ([]string, error) { return []string{"inner"}, nil }
		}, change)
	}
	var outside, inside locks.Tx
	look := func(tx *locks.Tx) echo.MiddlewareFunc {
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { *tx = echolock.TxFrom(c); return next(c) }
		}
	}
	for path, test := range map[string]struct {
		chain    []echo.MiddlewareFunc
		same     bool
		commits  int
		innerOne int
	}{
		"/twice": {[]echo.MiddlewareFunc{outer, look(&outside), outer, look(&inside)}, true, 1, 0},
		"/plain": {[]echo.MiddlewareFunc{outer, look(&outside), inner(func(*echolock.Config) {}), look(&inside)}, true, 1, 0},
		"/two":   {[]echo.MiddlewareFunc{outer, look(&outside), inner(inTx(other)), look(&inside)}, false, 1, 1},
	} {
		db.begins, db.commits, other.begins, other.commits = 0, 0, 0, 0
		rig.POST(path, created, test.chain...)
		wantCode(t, rig.serve(ask(path, "", "Idempotency-Key: a1")), http.StatusCreated)
		if outside == nil || inside == nil || (inside == outside) != test.same {
			t.Errorf("%s: TxFrom = %p outside, %p inside", path, outside, inside)
		}
		db.wantEnds(t, test.commits, 0)
		other.wantEnds(t, test.innerOne, 0)
	}
}

func TestOnAcquiredAnswersWithinTheTransaction(t *testing.T) {
	t.Parallel()
	problem := echolock.ProblemError(lockhttp.Malformed("receipt", "is gone"), nil)
	for name, test := range map[string]struct {
		answer            func(c echo.Context) error
		status            int
		commits, rollback int
	}{
		"an answer": {created, http.StatusCreated, 1, 0},
		"a refusal": {func(c echo.Context) error { return c.NoContent(http.StatusConflict) }, http.StatusConflict, 0, 1},
		"an error":  {func(echo.Context) error { return problem }, http.StatusBadRequest, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rig, db := newTxRig(t)
			rig.pay(mustNotRun(t), inTx(db), func(config *echolock.Config) {
				config.OnAcquired = func(c echo.Context, _ *locks.Lease) error {
					if echolock.TxFrom(c) == nil {
						t.Error("no transaction in OnAcquired")
					}
					return test.answer(c)
				}
			})
			w := rig.post("a1")
			wantCode(t, w, test.status)
			if test.status == http.StatusBadRequest {
				wantProblem(t, w, test.status, lockhttp.TypeMalformed)
			}
			db.wantEnds(t, test.commits, test.rollback)
		})
	}
}

func TestSetUpOfATransaction(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	var noStore *database
	for name, test := range map[string]struct {
		config echolock.Config
		field  string
	}{
		"FailOpen":      {echolock.Config{Tx: db, FailOpen: true}, "FailOpen"},
		"typed nil":     {echolock.Config{Tx: noStore}, "Tx"},
		"ResponseLimit": {echolock.Config{ResponseLimit: -1}, "ResponseLimit"},
	} {
		test.config.Locker = rig.locker
		_, err := test.config.ToMiddleware()
		var invalid *locks.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != test.field {
			t.Errorf("%s: ToMiddleware = %v, want the field %q", name, err, test.field)
		}
	}
	config := echolock.DefaultConfig
	config.Locker, config.Tx = rig.locker, db
	if _, err := config.ToMiddleware(); err != nil {
		t.Error(err)
	}
}
