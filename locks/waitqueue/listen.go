package waitqueue

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// ear is the state of the connection on which turns are heard. The front's mutex protects it.
type ear struct {
	hears      bool               // what is announced comes back: looks can wait
	idleSince  time.Time          // since when nobody waits, while the connection lingers
	sent       int64              // the last echo that was announced
	heard      int64              // the last one that came back
	complained bool               // the log has been told that nothing is heard, since it was last
	again      context.CancelFunc // ends the present connection, nil while there is none
}

const (
	echoPrefix = "echo "
	// Pauses between connections that fail.
	minRedial = 100 * time.Millisecond
	maxRedial = 30 * time.Second
)

// listen keeps a connection on which turns are heard, until ctx ends; stop waits for its end.
func (f *Front) listen(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause := minRedial
		for ctx.Err() == nil {
			connection, end := context.WithCancel(ctx)
			f.mu.Lock()
			f.ear.again = end
			f.mu.Unlock()
			heard := false
			err := f.config.Waker.Listen(connection, f.channel, func() { f.echo(connection) }, func(payload string) {
				heard = f.hear(payload) || heard
			})
			end()
			if ctx.Err() != nil {
				return
			}
			f.deaf("waitqueue: connection for notifications ended, polling until there is one", err)
			if heard {
				pause = minRedial
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, maxRedial)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// echo announces something to ourselves: what comes back shows that turns do. It goes through the host's pool, as what
// others announce, so that a connection to another database, or one through a pooler that gives it away after each
// transaction, is found out.
func (f *Front) echo(ctx context.Context) {
	f.mu.Lock()
	f.ear.sent++
	payload := echoPrefix + strconv.FormatInt(f.ear.sent, 10)
	f.mu.Unlock()
	go func() {
		_, err := call.Do(ctx, f.config.CallLimit, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.config.Backend.(Announcer).Announce(ctx, f.channel, payload)
		}, nil)
		if err != nil {
			f.config.Logger.Debug("waitqueue: nothing announced", "error", err)
		}
	}()
}

// hear takes one notification, and reports whether it was an echo.
func (f *Front) hear(payload string) bool {
	if number, ok := strings.CutPrefix(payload, echoPrefix); ok {
		n, err := strconv.ParseInt(number, 10, 64)
		if err == nil {
			f.heardEcho(n)
		}
		return err == nil
	}
	if ticket, err := strconv.ParseInt(payload, 10, 64); err == nil {
		f.Wake(ticket)
	}
	return false
}

// heardEcho trusts the connection again. What was announced before it is caught up with by a look at everything.
func (f *Front) heardEcho(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ear.heard = max(f.ear.heard, n)
	if f.ear.hears {
		return
	}
	f.ear.hears = true
	if f.ear.complained {
		f.ear.complained = false
		f.config.Logger.Info("waitqueue: notifications are heard again")
	}
	now := time.Now()
	for _, l := range f.lines {
		l.lookAt = now
	}
	f.notifyLocked()
}

// checkEar looks, each time the tickets are kept, whether the echo of the time before has come back, and sends another.
func (f *Front) checkEar(ctx context.Context) {
	if f.config.Waker == nil {
		return
	}
	f.mu.Lock()
	missing, again := f.ear.heard < f.ear.sent, f.ear.again
	f.mu.Unlock()
	if missing {
		f.deaf("waitqueue: notifications do not arrive (a pooler in transaction mode between?), polling until they do", nil)
		if again != nil {
			again()
		}
		return // the next connection sends its own
	}
	f.echo(ctx)
}

// deaf goes back to polling, and tells the log once.
func (f *Front) deaf(message string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ear.hears = false
	f.ear.heard = f.ear.sent
	if !f.ear.complained {
		f.ear.complained = true
		f.config.Logger.Warn(message, "error", err)
	}
	now := time.Now()
	for _, l := range f.lines {
		l.pause = f.config.MinPoll
		l.lookAt = now
	}
	f.notifyLocked()
}
