package pgxwaker_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/rowlease/rowlease/bunstore/pgxwaker"
)

// A host passes the waker to its store, with bunstore.WithWaker(waker), and does nothing else with it. This is what the
// store does.
func Example() {
	waker, err := pgxwaker.New(os.Getenv("DATABASE_URL"))
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

// The error of a bad connection string does not show the password.
func ExampleNew() {
	_, err := pgxwaker.New("postgres://app:secret@db.example.com/app?sslmode=sometimes")
	fmt.Println(err)
	// Output:
	// pgxwaker: the connection string cannot be parsed: failed to configure TLS (sslmode is invalid)
}
