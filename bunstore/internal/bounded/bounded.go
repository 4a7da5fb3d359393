// Package bounded bounds work that may not come back: a driver that ignores its context, a connection that was cut
// without a word.
package bounded

import (
	"context"
	"errors"
)

// Do runs work on a goroutine of its own and returns its answer, or the context's end as soon as that comes. The result
// of work that ends later is handed to late, unless it failed. A panic of work, one of a host's query hook, is the
// caller's, who may recover it.
func Do[T any](ctx context.Context, work func() (T, error), late func(T)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	answers, gone := make(chan answer), make(chan struct{})
	go func() {
		a := answer{err: errors.New("a hook has ended the goroutine")} // by runtime.Goexit: a test's Fatal
		defer func() {
			a.panicked = recover()
			select {
			case answers <- a:
			case <-gone:
				if a.err == nil && a.panicked == nil {
					late(a.value)
				}
			}
		}()
		a.value, a.err = work()
	}()
	select {
	case a := <-answers:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, a.err
	case <-ctx.Done():
		close(gone)
		var none T
		return none, ctx.Err()
	}
}
