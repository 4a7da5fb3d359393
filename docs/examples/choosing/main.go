// Command choosing shows each kind of lock at one small job, in one file each: what docs/choosing.md chooses among.
//
// It runs on SQLite, on a file that it removes, or on PostgreSQL where DATABASE_URL says so. SQLite has neither row locks
// nor advisory locks: there the program prints the error, which says what to use instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/uptrace/bun"

	"github.com/rowlease/rowlease/bunstore"
	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/bunstore/fence"
	"github.com/rowlease/rowlease/bunstore/optimistic"
	"github.com/rowlease/rowlease/locks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv("DATABASE_URL")); err != nil {
		fmt.Fprintln(os.Stderr, "choosing:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and its signals with it
	}
}

// app is what an application has anyway, and where the stories are printed.
type app struct {
	db     *bun.DB
	store  *bunstore.Store
	locker *locks.Locker
	dir    string // for a second database
	out    *log.Logger
}

func run(ctx context.Context, out io.Writer, databaseURL string) (err error) {
	dir, err := os.MkdirTemp("", "rowlease-choosing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is the system's temporary directory
	if databaseURL == "" {
		databaseURL = "file:" + filepath.Join(dir, "shop.db")
	}
	db, err := openDatabase(databaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := bunstore.Migrate(ctx, db); err != nil {
		return err
	}
	if err := makeTables(ctx, db); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dropTables(context.WithoutCancel(ctx), db)) }()
	store, err := bunstore.New(db)
	if err != nil {
		return err
	}
	locker, err := locks.New(store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(context.WithoutCancel(ctx))) }()
	return tell(ctx, &app{db, store, locker, dir, log.New(out, "", 0)})
}

// tell runs the stories. One that asks for what the database, or a pooler before it, does not have is told so by an error.
func tell(ctx context.Context, a *app) error {
	for _, story := range []struct {
		kind string
		tell func(context.Context, *app) error
	}{
		{"lease", leaseStory},
		{"guard", guardStory},
		{"acquire_tx", acquireTxStory},
		{"acquire_all", acquireAllStory},
		{"row", rowStory},
		{"queue", queueStory},
		{"advisory_tx", advisoryTxStory},
		{"advisory_session", advisorySessionStory},
		{"optimistic", optimisticStory},
		{"fence", fenceStory},
		{"local", localStory},
	} {
		a.out.Print(story.kind)
		switch err := story.tell(ctx, a); {
		case errors.Is(err, locks.ErrInvalid), errors.Is(err, advisory.ErrPooler):
			a.say("%v", err)
		case err != nil:
			return fmt.Errorf("%s: %w", story.kind, err)
		}
	}
	return nil
}

func (a *app) say(format string, args ...any) { a.out.Printf("  "+format, args...) }

// answer is how a call ended, in words that are the same in every run.
func answer(err error) string {
	for _, known := range []error{optimistic.ErrConflict, fence.ErrStale, locks.ErrHeld, locks.ErrLost} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "done"
}
