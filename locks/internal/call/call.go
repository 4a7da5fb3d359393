// Package call bounds calls to a store that may not come back: drivers that ignore their context, a connection that
// was cut without a word.
package call

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Do runs fn on a goroutine of its own, under a context that ends with ctx and after limit at the latest, and returns
// fn's answer, or the context's error as soon as that ends. An answer that comes after Do gave up goes to late, on
// fn's goroutine; late may be nil. A panic of fn is returned as a [*PanicError], since no caller could recover it
// from there.
func Do[T any](ctx context.Context, limit time.Duration, fn func(context.Context) (T, error), late func(T, error)) (T, error) {
	return Tracked(ctx, limit, fn, late, nil)
}

// Tracked is [Do], and calls done, which may be nil, when neither fn nor late runs any more.
func Tracked[T any](ctx context.Context, limit time.Duration, fn func(context.Context) (T, error), late func(T, error), done func()) (T, error) {
	if done == nil {
		done = func() {}
	}
	var none T
	if err := ctx.Err(); err != nil {
		done()
		return none, err
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	var answer struct { // one allocation
		value   T
		err     error
		given   chan struct{}
		decided atomic.Bool // whoever sets it decides whether the answer is taken or late
	}
	answer.given = make(chan struct{})
	go func() {
		defer done()
		defer cancel()
		value, err := protected(bounded, fn)
		if answer.decided.CompareAndSwap(false, true) {
			answer.value, answer.err = value, err
			close(answer.given)
		} else if late != nil {
			late(value, err)
		}
	}()
	select {
	case <-answer.given:
		return answer.value, answer.err
	case <-bounded.Done():
	}
	if !answer.decided.CompareAndSwap(false, true) {
		<-answer.given
		return answer.value, answer.err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return none, fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
}

// PanicError is a panic of a store, with the stack it came from.
type PanicError struct {
	Value any
	Stack []byte
}

// Error tells the panic's value; the stack is for a log.
func (e *PanicError) Error() string { return fmt.Sprintf("store panicked: %v", e.Value) }

func protected[T any](ctx context.Context, fn func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return fn(ctx)
}
