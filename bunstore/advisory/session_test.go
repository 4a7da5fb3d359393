package advisory_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

// bubble runs the test in virtual time, on a fake database that grants everything from backend 7. No goroutine may be
// left when it ends.
func bubble(t *testing.T, test func(t *testing.T, locker *advisory.Locker, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, f := newFake(t, always(true, 7, nil))
		locker, err := advisory.New(db,
			advisory.WithoutPoolerCheck(), advisory.WithCallLimit(2*time.Second), advisory.WithPingInterval(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		test(t, locker, f)
	})
}

func (f *fake) counts(t *testing.T, opened, closed int64) {
	t.Helper()
	synctest.Wait()
	if f.opened.Load() != opened || f.closed.Load() != closed {
		t.Errorf("%d connections opened and %d closed, want %d and %d", f.opened.Load(), f.closed.Load(), opened, closed)
	}
}

// hang makes the driver hang in statements of the kind, whatever their context, until release answers them.
func (f *fake) hang(of string) (release func(yes bool, backend int64, err error)) {
	answer := make(chan func() (bool, int64, error))
	f.answers(func(statement string, _ []driver.NamedValue) (bool, int64, error) {
		if kind(statement) != of {
			return true, 7, nil
		}
		return (<-answer)()
	})
	return func(yes bool, backend int64, err error) {
		answer <- func() (bool, int64, error) { return yes, backend, err }
	}
}

func mustLock(t *testing.T, locker *advisory.Locker) *advisory.Session {
	t.Helper()
	session, err := locker.TryLock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// A driver that hangs holds up nobody, and what it grants when nobody waits for it any more does not come into the pool.
func TestADriverThatHangsInALock(t *testing.T) {
	for of, lock := range map[string]func(context.Context, *advisory.Locker) error{
		"try":  func(ctx context.Context, l *advisory.Locker) error { _, err := l.TryLock(ctx, "a"); return err },
		"wait": func(ctx context.Context, l *advisory.Locker) error { _, err := l.Lock(ctx, "a"); return err },
	} {
		bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
			release := f.hang(of)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := lock(ctx, locker); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v, want the deadline", of, err, time.Since(began))
			}
			f.counts(t, 1, 0)
			release(true, 7, nil)
			f.counts(t, 1, 1)

			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if err := lock(ctx, locker); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want context.Canceled", of, err)
			}
			release(false, 7, nil)
			f.counts(t, 2, 1) // refused for certain: back in the pool

			if err := lock(t.Context(), locker); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want its own limit", of, err)
			}
			release(true, 0, errors.New("late"))
			f.counts(t, 2, 2)
		})
	}
}

func TestADriverThatHangsInAPing(t *testing.T) {
	bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
		session := mustLock(t, locker)
		release := f.hang("ping")
		began := time.Now()
		<-session.Context().Done()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("told after %v, want the interval and the limit of a call", took)
		}
		cause := context.Cause(session.Context())
		var lost *advisory.LostError
		if !errors.As(cause, &lost) || lost.Name != "a" || !errors.Is(cause, locks.ErrLost) || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("cause %v, want a LostError by a deadline", cause)
		}
		if err := session.Unlock(t.Context()); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
		f.counts(t, 1, 0)
		release(true, 7, nil) // the lock may still be there
		f.counts(t, 1, 1)
	})
}

func TestADriverThatHangsInAnUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
		session := mustLock(t, locker)
		release := f.hang("unlock")
		began := time.Now()
		err := session.Unlock(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 2*time.Second {
			t.Errorf("Unlock = %v after %v, want the limit of a call", err, time.Since(began))
		}
		if again := session.Unlock(t.Context()); again == nil || again.Error() != err.Error() {
			t.Errorf("Unlock again = %v, want %v", again, err)
		}
		f.counts(t, 1, 0)
		release(false, 7, nil)
		f.counts(t, 1, 1)
	})
}

// The connection comes back into the pool when the lock is free for certain, and never otherwise.
func TestWhatBecomesOfTheConnection(t *testing.T) {
	fault := errors.New("connection reset")
	for _, test := range []struct {
		name    string
		of      string
		yes     bool
		backend int64
		err     error
		want    error
		closed  int64
	}{
		{"refused", "try", false, 7, nil, locks.ErrHeld, 0},
		{"a fault in a try", "try", true, 0, fault, fault, 1},
		{"a fault in a wait", "wait", true, 0, fault, fault, 1},
		{"freed", "unlock", true, 7, nil, nil, 0},
		{"not freed", "unlock", false, 7, nil, locks.ErrLost, 1},
		{"a fault in an unlock", "unlock", true, 0, stateError("XX000"), stateError("XX000"), 1},
		{"unlocked by another backend", "unlock", true, 8, nil, advisory.ErrPooler, 1},
		{"a fault in a ping", "ping", true, 0, fault, fault, 1},
		{"another backend answers a ping", "ping", true, 8, nil, advisory.ErrPooler, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
				f.answers(func(statement string, _ []driver.NamedValue) (bool, int64, error) {
					if kind(statement) == test.of {
						return test.yes, test.backend, test.err
					}
					return true, 7, nil
				})
				lock := locker.TryLock
				if test.of == "wait" {
					lock = locker.Lock
				}
				session, err := lock(t.Context(), "a")
				if err == nil {
					if test.of == "ping" {
						<-session.Context().Done()
					}
					err = session.Unlock(t.Context())
					if session.Context().Err() == nil {
						t.Error("the session's context is alive")
					}
				}
				if !errors.Is(err, test.want) || (test.of == "ping") != (session != nil && errors.Is(context.Cause(session.Context()), locks.ErrLost)) {
					t.Errorf("%v, want %v", err, test.want)
				}
				f.counts(t, 1, test.closed)
			})
		})
	}
}

// What is lost by the time of the unlock is told as lost also where no ping has found it; what the server refuses is not.
func TestALossThatTheUnlockFinds(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		lost bool
	}{
		{"the connection", errors.New("connection reset"), true},
		{"a closed connection", sql.ErrConnDone, true},
		{"a backend that was ended", stateError("57P01"), true},
		{"a connection that the server gave up", stateError("08006"), true},
		{"a statement that was ended", stateError("57014"), false},
		{"a fault of the server", stateError("XX000"), false},
	} {
		bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
			session := mustLock(t, locker)
			f.answers(always(true, 0, test.err))
			err := session.Unlock(t.Context())
			var lost *advisory.LostError
			if errors.As(err, &lost) != test.lost || errors.Is(err, locks.ErrLost) != test.lost || !errors.Is(err, test.err) {
				t.Errorf("%s: Unlock = %v, want a LostError: %t", test.name, err, test.lost)
			}
			f.counts(t, 1, 1)
		})
	}
}

// A wait is cut into slices that drivers and hosts allow, up to its limit.
func TestAWaitInSlices(t *testing.T) {
	bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
		if err := mustLock(t, locker).Unlock(t.Context()); err != nil { // connected
			t.Fatal(err)
		}
		var waits []string
		f.answers(func(_ string, args []driver.NamedValue) (bool, int64, error) {
			text := args[1].Value.(string)
			waits = append(waits, text)
			slice, err := time.ParseDuration(text + "ms")
			if err != nil {
				t.Error(err)
			}
			time.Sleep(slice)
			return false, 0, stateError("55P03")
		})
		_, err := locker.Lock(t.Context(), "a", advisory.WithLimit(10*time.Second))
		if want := []string{"4000", "4000", "2000"}; !errors.Is(err, locks.ErrHeld) || !slices.Equal(waits, want) {
			t.Errorf("%v after waits of %v ms, want ErrHeld after %v", err, waits, want)
		}
		f.counts(t, 1, 0)
	})
}

// The acquire's context bounds the acquire: its values go on, its end does not. Unlock does not need its own either.
func TestContextsOfASession(t *testing.T) {
	type key struct{}
	bubble(t, func(t *testing.T, locker *advisory.Locker, f *fake) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		session, err := locker.Lock(ctx, "a", advisory.Shared())
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Hour) // of pings
		if err := session.Context().Err(); err != nil || session.Context().Value(key{}) != "v" {
			t.Errorf("the session's context: %v, value %v", err, session.Context().Value(key{}))
		}
		if session.Name() != "a" || !session.Shared() {
			t.Errorf("Name %q, Shared %t", session.Name(), session.Shared())
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := session.Unlock(ctx); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			})
		}
		all.Wait()
		if cause := context.Cause(session.Context()); !errors.Is(cause, locks.ErrReleased) {
			t.Errorf("cause %v, want ErrReleased", cause)
		}
		f.counts(t, 1, 0)
	})
}
