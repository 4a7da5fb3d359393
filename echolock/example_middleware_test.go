package echolock_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/memstore"
)

func payment(e *echo.Echo, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", http.NoBody)
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

func ExampleMiddleware() {
	locker, err := locks.New(memstore.New()) // bunstore.New(db) in production
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		if c.Request().Header.Get("Idempotency-Key") == "a1" { // while this one runs, others come
			fmt.Println("the same key:", payment(e, "a1").Code)
			fmt.Println("another key:", payment(e, "b2").Code)
		}
		return c.NoContent(http.StatusCreated)
	}, echolock.Middleware(locker, "header:Idempotency-Key"))

	fmt.Println("the first:", payment(e, "a1").Code)
	fmt.Println("afterwards:", payment(e, "c3").Code)
	// Output:
	// the same key: 423
	// another key: 201
	// the first: 201
	// afterwards: 201
}

func ExampleMiddlewareWithConfig() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		panic(err)
	}
	receipts := map[string]string{"a1": "receipt 7"} // a table of the application
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		return c.String(http.StatusCreated, "paid")
	}, echolock.MiddlewareWithConfig(echolock.Config{
		Locker:      locker,
		KeyLookup:   "header:Idempotency-Key",
		WaitTimeout: 2 * time.Second,
		HeldStatus:  http.StatusConflict, // what the Idempotency-Key draft wants
		OnAcquired: func(c echo.Context, _ *locks.Lease) error { // whoever waited may find the work done
			if receipt, done := receipts[c.Request().Header.Get("Idempotency-Key")]; done {
				return c.String(http.StatusOK, receipt)
			}
			return nil
		},
	}))
	fmt.Println(payment(e, "a1").Body)
	fmt.Println(payment(e, "b2").Body)
	fmt.Println(payment(e, "").Code)
	// Output:
	// receipt 7
	// paid
	// 400
}

func ExampleConfig_ToMiddleware() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		panic(err)
	}
	config := echolock.Config{Locker: locker, KeyLookup: "body:order"} // a typing error in a file, say
	_, err = config.ToMiddleware()
	fmt.Println(errors.Is(err, locks.ErrInvalid))
	fmt.Println(err)
	// Output:
	// true
	// echolock: locks: KeyLookup must have header, param, query, form or cookie as its source, got "body:order"
}

func ExampleLeaseFrom() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		// The token goes with what is written, so that the place it is written to can refuse an older one.
		fmt.Println("INSERT INTO payments (…, token) VALUES (…,", echolock.LeaseFrom(c).Token(), ")")
		return c.NoContent(http.StatusCreated)
	}, echolock.Middleware(locker, "header:Idempotency-Key"))
	payment(e, "a1")
	payment(e, "a1")
	// Output:
	// INSERT INTO payments (…, token) VALUES (…, 1 )
	// INSERT INTO payments (…, token) VALUES (…, 2 )
}

func ExampleMethodAndRoute() {
	locker, err := locks.New(memstore.New())
	if err != nil {
		panic(err)
	}
	e := echo.New()
	e.POST("/payments", func(c echo.Context) error {
		fmt.Println(echolock.LeaseFrom(c).Resource())
		return c.NoContent(http.StatusCreated)
	}, echolock.MiddlewareWithConfig(echolock.Config{
		Locker: locker,
		KeyScope: func(c echo.Context) ([]string, error) {
			scope, err := echolock.MethodAndRoute(c)
			tenant := "acme" // the one that authentication found, never one that the client names
			return append(scope, tenant), err
		},
	}))
	payment(e, "a1")
	// Output:
	// http:4:POST,9:/payments,4:acme,2:a1
}
