package echolock_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

// Under the race detector: 200 requests of 20 clients, on 10 keys that they share, a half of which roll back; with
// OnLost. Nothing of the middleware touches an echo.Context that echo has taken back, and nothing stays behind.
func TestManyTransactionsAtATime(t *testing.T) {
	t.Parallel()
	rig, db := newTxRig(t)
	rig.pay(func(c echo.Context) error {
		tx := echolock.TxFrom(c).(*databaseTx)
		key := c.Request().Header.Get("Idempotency-Key")
		tx.insert(key)
		c.SetCookie(&http.Cookie{Name: "key", Value: key})
		if c.Request().ContentLength > 0 {
			return c.NoContent(http.StatusConflict)
		}
		return c.String(http.StatusCreated, key)
	}, inTx(db), func(config *echolock.Config) {
		config.OnLost = func(lease *locks.Lease, err error) { t.Errorf("%s lost: %v", lease.Resource(), err) }
	})
	server := rig.server()
	const requests, clients, keys = 200, 20, 10
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for client := range clients {
		all.Go(func() {
			for i := range requests / clients {
				key, body := strconv.Itoa((client+i)%keys), ""
				if i%2 == 1 {
					body = "declined"
				}
				response, err := payTo(context.Background(), t, server, key, body)
				if err != nil {
					t.Error(err)
					continue
				}
				if cookies := response.Cookies(); response.StatusCode != http.StatusLocked && (len(cookies) != 1 || cookies[0].Value != key) {
					t.Errorf("%s was answered %d with %v", key, response.StatusCode, cookies)
				}
				mu.Lock()
				answers[response.StatusCode]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	server.Close()
	done, refused := answers[http.StatusCreated], answers[http.StatusConflict]+answers[http.StatusLocked]
	if done+refused != requests || done == 0 || len(db.words) != done {
		t.Errorf("answers = %v, %d written", answers, len(db.words))
	}
	db.wantEnds(t, done, refused)
	for key := range keys {
		rig.wantFree(strconv.Itoa(key))
	}
}
