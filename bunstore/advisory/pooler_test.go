package advisory_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rowlease/rowlease/bunstore/advisory"
	"github.com/rowlease/rowlease/locks"
)

// Many first locks at once look for a pooler once, and do not wait for each other's second connection.
func TestTheLookForAPoolerIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, f := newFake(t, always(false, 7, nil))
		db.SetMaxOpenConns(2)
		locker, err := advisory.New(db)
		if err != nil {
			t.Fatal(err)
		}
		lockByMany := func() {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if _, err := locker.TryLock(t.Context(), "a"); !errors.Is(err, locks.ErrHeld) {
						t.Errorf("TryLock = %v, want ErrHeld", err)
					}
				})
			}
			all.Wait()
		}
		lockByMany()
		once := f.looks.Load()
		if once != 9 { // one, and two rounds of four
			t.Errorf("%d questions, want 9", once)
		}
		lockByMany()
		if err := locker.Check(t.Context()); err != nil || f.looks.Load() != 2*once {
			t.Errorf("Check = %v, %d questions; want it to look again", err, f.looks.Load()-once)
		}
		f.counts(t, 2, 0)
	})
}

// What is found is looked for again: somebody may have put it right.
func TestAPoolerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, f := newFake(t, always(true, 7, nil))
		f.multiplexed.Store(true)
		locker, err := advisory.New(db)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := locker.TryLock(t.Context(), "a"); !errors.Is(err, advisory.ErrPooler) {
				t.Errorf("TryLock = %v, want ErrPooler", err)
			}
			if _, err := locker.Lock(t.Context(), "a"); !errors.Is(err, advisory.ErrPooler) {
				t.Errorf("Lock = %v, want ErrPooler", err)
			}
		}
		f.multiplexed.Store(false)
		session, err := locker.TryLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := session.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
