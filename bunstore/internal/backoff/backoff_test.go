package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestNext(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		least, most time.Duration
		bounds      []time.Duration
	}{
		{"doubles", 5, 70, []time.Duration{5, 10, 20, 40, 70, 70}},
		{"least alone", 1, 1, []time.Duration{1, 1}},
		{"no overflow", math.MaxInt64/2 + 1, math.MaxInt64, []time.Duration{math.MaxInt64/2 + 1, math.MaxInt64, math.MaxInt64}},
	} {
		longest := make([]time.Duration, len(test.bounds))
		for range 10_000 {
			b := New(test.least, test.most)
			for i, bound := range test.bounds {
				pause := b.Next()
				if pause <= 0 || pause > bound {
					t.Fatalf("%s: pause %d is %d, want it from 1 to %d", test.name, i, pause, bound)
				}
				longest[i] = max(longest[i], pause)
			}
		}
		for i, bound := range test.bounds { // of so many one is in the upper half, but for one case in 2^10000
			if longest[i] <= bound/2 {
				t.Errorf("%s: pause %d is never above %d of %d", test.name, i, longest[i], bound)
			}
		}
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Wait(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("Wait = %v after %v, want an hour", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := Wait(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("Wait = %v after %v, want the deadline after a minute", err, time.Since(began))
		}
	})
}
