// Command quickstart is the quick start of the README, as a program.
package main

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	_ "modernc.org/sqlite"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/echolock"
	"github.com/rowlease/rowlease/locks"
)

func main() {
	ctx := context.Background()
	sqldb, err := sql.Open("sqlite", "file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(1000)")
	if err != nil {
		log.Fatal(err)
	}
	db := bun.NewDB(sqldb, sqlitedialect.New()) // or PostgreSQL: pgdialect on pgx or pgdriver

	if err := bunstore.Migrate(ctx, db); err != nil { // or RegisterMigrations, into your own set
		log.Fatal(err)
	}
	store, err := bunstore.New(db)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := store.Check(ctx); err != nil { // an unfit database is found now, not at the first acquire
		log.Fatal(err)
	}
	locker, err := locks.New(store)
	if err != nil {
		log.Fatal(err)
	}

	// Workers: one runs, the others wait; with TryDo they skip.
	err = locker.Do(ctx, "report:2026-05", func(ctx context.Context, lease *locks.Lease) error {
		log.Printf("writing the report under token %d", lease.Token())
		return ctx.Err() // ctx ends when the lease is lost
	})
	if err != nil {
		log.Print(err)
	}

	// Requests: two for one key never run together; the second is answered 423 with Retry-After.
	e := echo.New()
	e.POST("/payments", pay, echolock.Middleware(locker, "header:Idempotency-Key"))
	log.Fatal(e.Start("127.0.0.1:8080"))
}

func pay(c echo.Context) error {
	return c.JSON(http.StatusCreated, map[string]int64{"token": echolock.LeaseFrom(c).Token()})
}
