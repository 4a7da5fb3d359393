package echolock_test

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func ExampleTxFrom() {
	store := memstore.New() // bunstore.New(db) in production
	locker, err := locks.New(store)
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		tx := echolock.TxFrom(c) // bunstore.TxFrom(tx) is the handle that queries run on
		tx.OnEnd(func(outcome locks.Outcome) { fmt.Println("the payment is", outcome) })
		if c.Request().Header.Get("Idempotency-Key") == "b2" {
			return echo.NewHTTPError(http.StatusPaymentRequired, "card declined")
		}
		return c.NoContent(http.StatusCreated) // sent when the transaction is committed
	}, echolock.MiddlewareWithConfig(echolock.Config{
		Locker: locker,
		Tx:     store,
	}))
	fmt.Println(payment(e, "a1").Code)
	fmt.Println(payment(e, "b2").Code)
	// Output:
	// the payment is committed
	// 201
	// the payment is rolled back
	// 402
}

func ExampleTxFromContext() {
	store := memstore.New()
	locker, err := locks.New(store)
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		ctx := c.Request().Context() // what deeper layers get
		fmt.Println("in a transaction:", echolock.TxFromContext(ctx) != nil)
		return c.NoContent(http.StatusCreated)
	}, echolock.MiddlewareWithConfig(echolock.Config{Locker: locker, Tx: store}))
	payment(e, "a1")
	// Output: in a transaction: true
}
