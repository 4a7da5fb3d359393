package echolock_test

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
)

// Two processes, fifty first requests for one key: one runs at a time, and somebody does run.
func TestTheHandlerRunsOnceAtATime(t *testing.T) {
	for name, limit := range map[string]time.Duration{"without a wait": 0, "waiting": time.Minute} {
		t.Run(name, func(t *testing.T) {
			rig := newGuardRig(t)
			var inside, runs atomic.Int64
			handler := func(c echo.Context) error {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d run at once", n)
				}
				runs.Add(1)
				runtime.Gosched()
				inside.Add(-1)
				return created(c)
			}
			config := echolock.Config{Locker: rig.newLocker(), WaitTimeout: limit}
			processes := []*echo.Echo{rig.Echo, echo.New()}
			rig.pay(handler, waiting(limit))
			processes[1].POST("/pay", handler, echolock.MiddlewareWithConfig(config))

			var requests sync.WaitGroup
			var ran, refused atomic.Int64
			for i := range 50 {
				requests.Go(func() {
					process := guardRig{Echo: processes[i%2], t: t}
					switch w := process.post("a1"); w.Code {
					case http.StatusCreated:
						ran.Add(1)
					case http.StatusLocked:
						refused.Add(1)
					default:
						t.Errorf("answer = %d %s", w.Code, w.Body)
					}
				})
			}
			requests.Wait()
			if ran.Load() != runs.Load() || ran.Load() < 1 || ran.Load()+refused.Load() != 50 || (limit > 0 && ran.Load() != 50) {
				t.Errorf("%d ran, %d refused, the handler ran %d times", ran.Load(), refused.Load(), runs.Load())
			}
			rig.wantFree("a1")
		})
	}
}

func TestManyKeysLeaveNothingBehind(t *testing.T) {
	rig := newGuardRig(t)
	rig.pay(created)
	rig.post("warm up")
	before := runtime.NumGoroutine()
	keys := 100_000
	if testing.Short() || raceDetector {
		keys = 10_000
	}
	for key := range keys {
		wantCode(t, rig.post(strconv.Itoa(key)), http.StatusCreated)
	}
	if rows := rig.store.Rows(); rows != 0 {
		t.Errorf("%d rows left", rows)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // renewals that have just been told to end
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("goroutines: %d before, %d after", before, after)
	}
}
