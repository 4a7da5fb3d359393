package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/rowlease/rowlease/locks/internal/call"
)

// Defaults of a [Janitor].
const (
	// DefaultPurgeInterval is the time from one purge to the next.
	DefaultPurgeInterval = time.Minute
	// DefaultPurgeBatch is how many rows one statement deletes at most.
	DefaultPurgeBatch = 1000
)

// Janitor deletes the rows of ended leases from a store. Released leases leave no rows, so what it finds are those of
// processes that were killed or that lost their database. Any number of processes may run one on the same store. It is
// safe for concurrent use.
type Janitor struct {
	store    Purger
	interval time.Duration
	batch    int
	report   func(ctx context.Context, purged int, err error)
}

// JanitorOption configures a [Janitor].
type JanitorOption func(*Janitor) error

// WithPurgeInterval sets the time from one purge to the next, a minute by default.
func WithPurgeInterval(interval time.Duration) JanitorOption {
	return func(j *Janitor) error {
		j.interval = interval
		return sane("purge interval", interval)
	}
}

// WithPurgeBatch sets how many rows one statement deletes at most, 1,000 by default, so that no purge holds many row
// locks for long.
func WithPurgeBatch(rows int) JanitorOption {
	return func(j *Janitor) error {
		j.batch = rows
		if rows < 1 {
			return &InvalidError{Field: "purge batch", Reason: fmt.Sprintf("must be positive, got %d", rows)}
		}
		return nil
	}
}

// WithPurgeReport calls report after each purge of [Janitor.Run].
func WithPurgeReport(report func(ctx context.Context, purged int, err error)) JanitorOption {
	return func(j *Janitor) error {
		j.report = report
		return nil
	}
}

// NewJanitor returns a janitor for the store. Nothing runs until [Janitor.Run] or [Janitor.Purge]. Errors:
// [ErrInvalid].
func NewJanitor(store Purger, options ...JanitorOption) (*Janitor, error) {
	if store == nil {
		return nil, &InvalidError{Field: "store", Reason: "must not be nil"}
	}
	j := &Janitor{store: store, interval: DefaultPurgeInterval, batch: DefaultPurgeBatch}
	for _, option := range options {
		if option == nil {
			return nil, &InvalidError{Field: "option", Reason: "must not be nil"}
		}
		if err := option(j); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// Run purges at each interval until the context ends: start it in a goroutine, stop it by its context. A purge that
// fails is tried again at the next interval; see [WithPurgeReport]. Intervals vary by a tenth, so that replicas that
// started together do not purge together.
func (j *Janitor) Run(ctx context.Context) {
	timer := time.NewTimer(jitter(j.interval / 10))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		purged, err := j.Purge(ctx)
		if j.report != nil && ctx.Err() == nil {
			j.report(ctx, purged, err)
		}
		timer.Reset(j.interval - j.interval/20 + jitter(j.interval/10))
	}
}

// Purge deletes all expired rows now, batch by batch, and returns how many. Each batch is bounded by
// [DefaultCallLimit]. Errors: [ErrBusy], a context's end, or the store's fault; what was purged before stays purged.
func (j *Janitor) Purge(ctx context.Context) (int, error) {
	for purged := 0; ; {
		n, err := call.Do(ctx, DefaultCallLimit, func(ctx context.Context) (int, error) {
			return j.store.Purge(ctx, j.batch)
		}, nil)
		purged += n
		if err != nil || n < j.batch {
			return purged, faultOf(ctx, err)
		}
	}
}
