package pgdriverwaker_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/rowlease/rowlease/bunstore/pgdriverwaker"
)

// A host passes the waker to its store, with bunstore.WithWaker(waker), and does nothing else with it. This is what the
// store does.
func Example() {
	waker, err := pgdriverwaker.New(os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err = waker.Listen(ctx, "news",
		func() { fmt.Println("listening") },
		func(payload string) { fmt.Println("heard", payload) })
	fmt.Println("ended:", err)
}

// The error of a bad DSN does not show the password.
func ExampleNew() {
	_, err := pgdriverwaker.New("postgres://app:secret@db.example.com/app?sslmode=sometimes")
	fmt.Println(err)
	// Output:
	// pgdriverwaker: the DSN cannot be parsed: sslmode 'sometimes' is not supported
}
