package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

const (
	// linger is how long the connection stays after the last waiter, so that a process which waits again and again does not
	// open one each time.
	linger = time.Second
	// maxDial is how long a connection may take until it listens.
	maxDial = 30 * time.Second
	// Pauses between connections that fail.
	minRedial = 100 * time.Millisecond
	maxRedial = 30 * time.Second
	// echo is what we announce to ourselves: what comes back shows that turns do. It goes through the host's pool, as what
	// others announce, so that a connection to another database, or one through a pooler that gives it away after each
	// transaction, is found out.
	echo = "echo"
)

var (
	errNoEcho   = errors.New("notifications do not arrive (a pooler in transaction mode between?)")
	errSlowDial = fmt.Errorf("not connected within %v", maxDial)
)

// ear is that a connection is wanted on which turns are heard: from the first waiter until linger after the last.
type ear struct {
	hears bool // what is announced comes back: looks can wait
	end   context.CancelFunc
	idle  *time.Timer // runs while nobody waits
}

// dialing is what is remembered of connections that failed, also while none is wanted.
type dialing struct {
	at         time.Time // not before
	pause      time.Duration
	complained bool // the log has been told that nothing is heard, since it was last
}

func (f *Front) hearsLocked() bool { return f.ear != nil && f.ear.hears }

// listenLocked sees to it that there is a connection while somebody waits.
func (f *Front) listenLocked() {
	if f.ear == nil && f.config.Waker != nil {
		ctx, cancel := context.WithCancel(context.Background())
		e := &ear{end: cancel}
		e.idle = time.AfterFunc(linger, func() { f.unneeded(e) })
		f.ear = e
		go f.listen(ctx, e)
	}
	if f.ear != nil {
		f.ear.idle.Stop()
	}
}

// lingerLocked ends the connection in a while.
func (f *Front) lingerLocked() {
	if f.ear != nil {
		f.ear.idle.Reset(linger)
	}
}

func (f *Front) unneeded(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ear == e && len(f.places) == 0 {
		f.ear = nil
		e.end()
	}
}

// listen keeps a connection on which turns are heard, until ctx ends. There is one at a time, also where the last one does
// not come back when it is told to.
func (f *Front) listen(ctx context.Context, e *ear) {
	for {
		f.mu.Lock()
		wait := time.Until(f.dial.at)
		f.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		select {
		case f.line <- struct{}{}:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := f.connect(ctx, e)
		if ctx.Err() != nil {
			return
		}
		f.deaf(e, err, time.Since(began))
	}
}

// connect listens on one connection, and returns why it ended.
func (f *Front) connect(ctx context.Context, e *ear) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var (
		ended    = make(chan error, 1)
		listens  = make(chan struct{}, 1)
		echoed   = make(chan struct{}, 1)
		told     = make(chan error, 1) // how the last echo was announced
		answered = false
		cause    error
	)
	go func() {
		err := f.attend(ctx, listens, echoed)
		<-f.line
		ended <- err
	}()
	dial := time.NewTimer(maxDial)
	defer dial.Stop()
	check := time.NewTicker(f.config.TTL / 3)
	defer check.Stop()
	check.Stop() // until it listens
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-dial.C:
			return errSlowDial
		case <-listens:
			dial.Stop()
			check.Reset(f.config.TTL / 3)
			f.announce(ctx, told)
		case cause = <-told:
		case <-echoed:
			answered = true
			f.hears(e)
		case <-check.C:
			if !answered {
				return errors.Join(errNoEcho, cause)
			}
			answered = false
			f.announce(ctx, told)
		}
	}
}

// attend is the waker's Listen. What it hears later than it should does no harm.
func (f *Front) attend(ctx context.Context, listens, echoed chan<- struct{}) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("waker panicked: %v", p)
		}
	}()
	tell := func(c chan<- struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return f.config.Waker.Listen(ctx, f.channel, func() { tell(listens) }, func(payload string) {
		if payload == echo {
			tell(echoed)
		} else if ticket, err := strconv.ParseInt(payload, 10, 64); err == nil {
			f.Wake(ticket)
		}
	})
}

// announce sends the echo.
func (f *Front) announce(ctx context.Context, told chan<- error) {
	go func() {
		_, err := call.Do(ctx, f.limit(), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.config.Backend.(Announcer).Announce(ctx, f.channel, echo)
		}, nil)
		select {
		case told <- err:
		default:
		}
	}()
}

// hears trusts the connection. What was announced before is caught up with by a look at everything.
func (f *Front) hears(e *ear) {
	f.mu.Lock()
	news := !e.hears
	e.hears = true
	again := f.dial.complained
	f.dial.complained = false
	if news && f.ear == e {
		f.lookAtAllLocked()
	}
	f.mu.Unlock()
	if again {
		f.log(slog.LevelInfo, "waitqueue: notifications are heard again", nil)
	}
}

// deaf goes back to polling, tells the log once, and sets when to dial again.
func (f *Front) deaf(e *ear, err error, lasted time.Duration) {
	f.mu.Lock()
	first := !f.dial.complained
	f.dial.complained = true
	if e.hears {
		e.hears = false
		f.lookAtAllLocked()
	}
	if f.dial.pause == 0 || lasted >= maxRedial { // one that lasted has earned a quick successor
		f.dial.pause = minRedial
	}
	// Random, since a server that restarts cuts the connections of all processes together.
	f.dial.at = time.Now().Add(f.dial.pause/2 + rand.N(f.dial.pause/2))
	f.dial.pause = min(2*f.dial.pause, maxRedial)
	f.mu.Unlock()
	if first {
		f.log(slog.LevelWarn, "waitqueue: polling, since no notifications are heard", err)
	}
}
